//! A node that dies: told by the others, declared dead by a person, its work moved, and back through the gate.
//!
//! The person's word is written as the command writes it, and the command is killed after each of its writes.

use std::time::Duration;

use agent::Clock;
use outage::failover::{FailoverState, calls};
use serde_json::Value;

use site::{Site, pass};

mod chance;
mod links;
mod onlooker;
mod rows;
mod site;

#[tokio::test(start_paused = true)]
async fn f10_f11_a_dead_node_is_told_within_a_minute_and_its_work_moves_by_one_word_whoever_is_killed_after_it()
 {
    let mut site = Site::of(3, 0).await;
    site.sim.add_claim("shop", "own", "pv-own");
    let since_1970 = -Clock::new().wall().to_timestamp().as_second();
    // Whoever declares it is killed before its second write, or before its third; by how much which clocks are wrong.
    let rows: [(bool, i64, &[usize]); 5] = [
        (false, 0, &[]),
        (true, since_1970, &[1]),
        (false, 400 * 86_400, &[1]),
        (true, since_1970, &[0, 1, 2]),
        (false, 400 * 86_400, &[0, 1, 2]),
    ];
    for (has_taint, secs, wrong) in rows {
        let what = format!("tainted: {has_taint}, {secs} s at {wrong:?}");
        site.seen.note(&what);
        site.clocks(secs, wrong).await;
        let dead = site.busy();
        let (name, others) = (site.name(dead).to_owned(), site.but(&[dead]));
        site.sim.add_mounting_pod("shop", "alone", &name, "own");
        let runs = |it: &Value| it["metadata"]["name"] == "alone" && it["status"]["phase"] == "Running";
        site.sim.until("pods", |all| all.iter().any(runs)).await;
        pass(60).await;
        let (clock, died) = (Clock::new(), Clock::new().now());
        let told = site.falls_silent(dead).await;
        let after = clock.now().since(died);
        assert!(after < Duration::from_secs(60), "{what}: told after {after:?}");
        for words in [
            "; on it: machine shop/till, pod shop/alone",
            "; not elsewhere: pod shop/alone (nothing makes it again)",
        ] {
            assert!(told.error.contains(words), "{what}: {}", told.error);
        }
        assert!(
            told.next_step.contains(&format!("zedbox failover declare {name} --powered-off")),
            "{told:?}"
        );
        assert_eq!(site.taint(dead), "", "nobody acts without a word");
        let word = site.declared(others[0], dead).await;
        if has_taint {
            let cluster = site.worlds[others[0]].cluster.handle();
            let node =
                outage::calls::named(&cluster, &kubeapi::NodeName::parse(&name).unwrap()).await.unwrap();
            calls::taint(&cluster, &node, &word).await.unwrap();
        }
        let moved = site.until(&word, &[FailoverState::Moved]).await;
        for it in &moved.work {
            let waits = if it.name == "alone" { "nothing makes it again" } else { "" };
            assert_eq!((it.waits.as_str(), it.on.is_empty()), (waits, it.name == "alone"), "{what}: {it:?}");
        }
        site.told(others[1], dead, "declared dead by operator anna").await.unwrap();
        site.boots(dead);
        site.until(&word, &[FailoverState::Returned]).await;
        site.is_well(&what).await;
    }
    site.ends().await;
}
