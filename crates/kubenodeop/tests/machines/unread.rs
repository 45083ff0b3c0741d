//! Machines that cannot be read: none is guessed about, and no launcher of one is evicted.

use super::*;

#[tokio::test(start_paused = true)]
async fn d12_what_the_role_does_not_let_us_read_is_named_and_the_next_attempt_starts_when_it_does() {
    for list in
        ["virtualmachineinstances", "virtualmachineinstancemigrations", "kubevirts", "virtualmachines/db"]
    {
        let (sim, cluster) = cluster("v1.7.3", |sim| {
            sim.add_machine_on("shop", "db", "Always", "n1", &json!({}));
            sim.add_bare_pod("tools", "shell", "n1");
        })
        .await;
        let path = if list.contains('/') { list.to_owned() } else { format!("kubevirt.io/v1/{list}") };
        sim.faults().script("GET", &path, u32::MAX, ScriptedFault::status(403, "User \"edge\" cannot list"));
        let mut attempt = Attempt::start(&cluster);
        let failure = (&mut attempt.future).await.unwrap_err();
        let kubenodeop::AttemptFailure { reason, blockers, watched, .. } = *failure;
        assert!(
            reason.contains("virtual machines cannot be read") && reason.contains("403"),
            "{list}: {reason}"
        );
        let [blocker] = &blockers[..] else { panic!("{list}: {blockers:?}") };
        assert_eq!(blocker.code, BlockCode::Refused);
        assert!(blocker.pod.contains("/virt-launcher-db"), "{blocker:?}");
        let newest = attempt.progress.borrow().clone();
        assert!(
            newest.trouble_step.contains("role pillar-rs-machines, as an administrator: `zedbox role"),
            "{newest:?}"
        );
        assert_eq!(newest.blockers, blockers);
        assert_eq!(evictions(&sim), [""; 0], "{list}: neither the launcher nor a pod");
        let what = woken(&cluster, &watched, 60, || sim.faults().clear(), 3).await;
        assert!(what.contains("list the virtual machines of this node"), "{what}");
        Attempt::start(&cluster).drained().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d12_a_machine_that_does_not_parse_is_named_alone_and_left_until_it_does() {
    type Garble = fn(&mut Value);
    let table: [(&str, Garble, &str); 3] = [
        (
            GUESTS,
            |it| it["spec"]["evictionStrategy"] = "Teleport".into(),
            "spec.evictionStrategy of its instance is \"Teleport\"",
        ),
        (
            GUESTS,
            |it| it["spec"]["evictionStrategy"] = json!(7),
            "spec.evictionStrategy of its instance is 7",
        ),
        (
            GUESTS,
            |it| it["status"]["migrationState"] = json!("odd"),
            "status.migrationState of its instance is \"odd\"",
        ),
    ];
    for (kind, garble, said) in table {
        let (sim, cluster) = cluster("v1.7.3", |sim| {
            sim.add_machine_on("shop", "db", "Always", "n1", &json!({ "evictionStrategy": "None" }));
            sim.add_machine_on("shop", "well", "Always", "n1", &migratable());
        })
        .await;
        let before = sim.get(kind, "shop", "db").unwrap();
        sim.edit(kind, "shop", "db", garble);
        let mut attempt = Attempt::start(&cluster);
        let seen = attempt
            .until(|it| !it.blockers.is_empty() && it.machines.iter().any(|it| it.state == "gone"))
            .await;
        assert_eq!(seen.blockers.len(), 1, "{seen:?}");
        let blocker = &seen.blockers[0];
        assert_eq!(
            (blocker.code.clone(), blocker.pod.clone()),
            ("unreadable".to_owned(), "virtual machine shop/db".to_owned())
        );
        assert!(blocker.reason.contains(said), "{}", blocker.reason);
        assert!(!evictions(&sim).iter().any(|it| it.starts_with("virt-launcher-db")), "{said}");
        sim.edit(kind, "shop", "db", |it| {
            (it["spec"], it["status"]) = (before["spec"].clone(), before["status"].clone());
        });
        attempt.drained().await;
    }
}
