//! Operations, limits and the test of an image, as tables: each story is its name, and below it steps and what holds after
//! them. Times are seconds from the start.
//!
//! A story begins at the start of the agent (`fresh`), on a device that runs good image A with everything heard (`idle`), with
//! that image in test (`in test`), with B in test and without a word of the controller (`trial`), or on a node of this role
//! beside a zedkube that answers questions: at rest (`beside`), with a drained node and a reboot that is about to be done
//! (`drained`), or in test and without a controller for as long as that may last (`falls back`).

use topics::{OutageRole, OutageVerdict};

use super::last_look::{answer, beside, drained, falls_back, question};
use super::*;

/// Splits a text of stories into names and steps.
fn stories(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.trim().split("\n\n").map(|story| {
        let (name, steps) = story.split_once('\n').unwrap();
        (name.trim(), steps.split([',', '\n']).map(str::trim).filter(|it| !it.is_empty()).collect())
    })
}

/// Plays each of these stories, on a bench of its own.
fn play(text: &str) {
    for (name, steps) in stories(text) {
        println!("{name}");
        let mut bench = start(steps[0]);
        for (nth, step) in steps.iter().enumerate().skip(1) {
            run(&mut bench, step, &format!("{name}, step {nth}: {step}"));
        }
    }
}

/// Plays the only story of a test.
pub(super) fn tell(steps: &str) {
    play(&format!("this story\n{steps}"));
}

fn start(word: &str) -> Bench {
    let mut bench = Bench::with(SavedNodeState::default());
    let role = || named(&[OutageRole::None, OutageRole::Worker, OutageRole::Server], word.rsplit(' ').next());
    match word {
        "fresh" => {}
        "idle" => return Bench::new(),
        "in test" => {
            bench = Bench::new();
            bench.partition("IMGA", "inprogress", true);
        }
        "trial" => {
            bench.hear(Event::Heard(RequiredReading::Drain));
            bench.partition("IMGA", "unused", false);
            bench.partition("IMGB", "inprogress", true);
        }
        other if other.starts_with("beside ") => return beside(role()),
        other if other.starts_with("drained ") => return drained(role(), MachineOperation::Reboot),
        other if other.starts_with("falls back ") => return falls_back(role()),
        other => panic!("begins with {other}"),
    }
    bench
}

/// The one of these with this name.
fn named<T: Copy + std::fmt::Debug>(all: &[T], word: Option<&str>) -> T {
    *all.iter().find(|it| word == Some(&format!("{it:?}"))).unwrap_or_else(|| panic!("{word:?}"))
}

fn operation(word: &str) -> MachineOperation {
    let all = [MachineOperation::Reboot, MachineOperation::Shutdown, MachineOperation::Poweroff];
    all.into_iter().find(|it| it.word() == word).unwrap_or_else(|| panic!("no operation {word}"))
}

/// What a status says, in the order of its members.
fn flags(status: &NodeAgentStatus) -> String {
    let all = [
        (status.update_inprogress, "testing"),
        (status.wait_drain_in_progress, "draining"),
        (status.device_reboot, "reboot"),
        (status.device_shutdown, "shutdown"),
        (status.device_poweroff, "poweroff"),
        (status.all_domains_halted, "halted"),
        (status.local_maintenance_mode, "maintenance"),
    ];
    all.into_iter().filter_map(|(is, word)| is.then_some(word)).collect::<Vec<_>>().join(" ")
}

/// Each of these with its second.
fn timed<T>(all: &[(u64, T)], of: impl Fn(&T) -> String) -> String {
    all.iter().map(|(at, it)| format!("{at} {}", of(it))).collect::<Vec<_>>().join("; ")
}

/// A step of a story, or what holds then.
fn run(bench: &mut Bench, step: &str, what: &str) {
    let words: Vec<&str> = step.split(' ').collect();
    if !does(bench, &words) {
        holds(bench, &words, what);
    }
}

/// Whether it is a step.
fn does(bench: &mut Bench, words: &[&str]) -> bool {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    match *words {
        ["wait", _] => bench.wait(number(1)),
        ["command", ..] => {
            let all: Vec<_> = words[1..].iter().map(|it| operation(it)).collect();
            bench.hear(command(&all));
        }
        ["ours", "commands", ..] => {
            let all: Vec<_> = words[2..].iter().map(|it| operation(it)).collect();
            bench.hear(Event::Wish(DeviceCommand { ours: true, ..wish(&all) }));
        }
        ["controller", said] => {
            use ConfigGetStatus::{Fail, Never, ReadSaved, Stranger, Success, TemporaryFail};
            let all = [Fail, Never, ReadSaved, Stranger(9), Success, TemporaryFail];
            bench.contact(named(&all, Some(said)));
        }
        ["certificates", "refused"] => {
            let contact = ConfigGetStatus::Success;
            bench.hear(Event::Wish(DeviceCommand {
                certs_refused: true,
                contact,
                ..DeviceCommand::default()
            }));
        }
        ["application", key, said] => drop(bench.hear(application(key, said == "runs"))),
        ["heard", "applications"] => drop(bench.hear(Event::Heard(RequiredReading::Applications))),
        ["heard", "partitions"] => drop(bench.hear(Event::Heard(RequiredReading::Partitions))),
        ["heard", "drain"] => drop(bench.hear(Event::Heard(RequiredReading::Drain))),
        ["spare", state] => drop(bench.partition("IMGB", state, false)),
        ["runs", label, state] => drop(bench.partition(label, state, true)),
        ["runs", label, state, "taken"] => drop(bench.hear(partition(label, state, true, true))),
        ["took", asked, operated] => {
            let outcome = match operated {
                "machine" => Ok(Took::Machine),
                "stand-in" => Ok(Took::StandIn),
                refused => Err(refused.to_owned()),
            };
            bench.hear(Event::Operated { operation: operation(asked), outcome });
        }
        ["drain", status, by] => {
            bench.drain(named(DrainStatus::NAMED, Some(status)), named(Requester::NAMED, Some(by)));
        }
        ["vault", "opening"] => drop(bench.hear(Event::Vault(Vault::Opening))),
        ["vault", "open"] => drop(bench.hear(Event::Vault(Vault::Open))),
        ["vault", "silent"] => drop(bench.hear(Event::Vault(Vault::Silent))),
        ["vault", "shut", ..] => {
            let indexes = words[2..].iter().map(|it| it.parse().unwrap()).collect();
            bench.hear(Event::Vault(Vault::Shut(indexes)));
        }
        ["fallback", "limit", _] => {
            let fallback = Duration::from_secs(number(2));
            bench.hear(Event::Waits(Waits { fallback, ..Waits::default() }));
        }
        ["space", "unknown"] => drop(bench.hear(Event::Space(None))),
        ["space", _] => drop(bench.hear(Event::Space(Some(number(1))))),
        ["zedkube", "holds", "at", _] => {
            let place = u32::try_from(number(3)).unwrap();
            answer(bench, OutageVerdict::Hold, |it| it.place = place);
        }
        ["zedkube", "goes"] => answer(bench, OutageVerdict::Go, |_| {}),
        ["late"] => bench.now = bench.now + Duration::from_secs(60),
        _ => return false,
    }
    true
}

fn holds(bench: &Bench, words: &[&str], what: &str) {
    let rest = |from: usize| words[from..].join(" ");
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    match *words {
        ["did", ..] => assert_eq!(timed(&bench.kinds(), |it| (*it).to_owned()), rest(1), "{what}"),
        ["last", ..] => {
            let all = bench.kinds();
            assert_eq!(timed(&all[all.len() - 1..], |it| (*it).to_owned()), rest(1), "{what}");
        }
        ["device", ..] => {
            let all = bench.operations().into_iter().map(|(at, operation, why)| (at, (operation, why)));
            let all = timed(&all.collect::<Vec<_>>(), |it| format!("{} {:?}", it.0.word(), it.1));
            assert_eq!(all, rest(1).trim_matches('-'), "{what}");
        }
        ["shows", ..] => assert_eq!(flags(&bench.status()), rest(1).trim_matches('-'), "{what}"),
        ["published", _] => assert_eq!(bench.published().len().to_string(), words[1], "{what}"),
        ["says", _, ..] => assert_eq!(bench.said(&rest(2)).to_string(), words[1], "{what}"),
        ["skipped", "nothing"] => assert_eq!(bench.said("drain skipped: "), 0, "{what}"),
        ["skipped", ..] => {
            let told = |it: &Effect| is_said(it, "drain skipped: ") && is_said(it, &rest(1));
            let told = bench.done.iter().filter(|(_, it)| told(it)).count();
            assert_eq!((told, bench.said("drain skipped: ")), (1, 1), "{what}");
        }
        ["at", _, "says", ..] => {
            let told = bench.done.iter().find(|(_, it)| is_said(it, &rest(3)));
            assert_eq!(told.map(|it| it.0), Some(number(1)), "{what}");
        }
        ["maintenance", ..] => {
            let status = bench.status();
            let reasons = status.local_maintenance_mode_reasons;
            let is_in = reasons.as_ref().is_some_and(|it| !it.is_empty());
            assert_eq!(status.local_maintenance_mode, is_in, "{what}");
            let reasons = reasons.map_or("never".to_owned(), |all| {
                if all.is_empty() { "over".to_owned() } else { format!("{all:?}").replace(',', "") }
            });
            assert_eq!(reasons.trim_matches(['[', ']']), rest(1), "{what}");
        }
        ["remaining", _] => {
            assert_eq!(
                bench.status().remaining_test_time,
                1_000_000_000 * i64::try_from(number(1)).unwrap(),
                "{what}"
            );
        }
        ["verdicts", _] => assert_eq!(bench.verdicts().len().to_string(), words[1], "{what}"),
        ["passed", _] => {
            assert_eq!(bench.verdicts().iter().filter(|it| it.2).count().to_string(), words[1], "{what}");
        }
        ["verdict", _, label, said] => {
            let verdict = Some((number(1), label.to_owned(), said == "passed"));
            assert_eq!(bench.verdicts().pop(), verdict, "{what}");
        }
        ["asks", "nothing"] => assert!(!bench.kinds().iter().any(|it| it.1 == "question"), "{what}"),
        ["asks", kind] => assert_eq!(format!("{:?}", question(bench).kind), kind, "{what}"),
        ["held", "for", ..] => {
            assert!(question(bench).held.contains(&rest(2)), "{what}: {:?}", question(bench));
        }
        ["next", ..] => {
            assert!(question(bench).next_step.contains(&rest(1)), "{what}: {:?}", question(bench));
        }
        ["not", "held"] => assert_eq!(question(bench).held, "", "{what}"),
        ["journal", ..] => {
            let of = |it: &Effect| matches!(it, Effect::Journal(it) if it.order.reason.contains(&rest(1)));
            assert!(bench.done.iter().any(|(_, it)| of(it)), "{what}: {:?}", bench.done);
        }
        _ => panic!("{what}: no such step"),
    }
}

#[test]
fn an_operation_takes_its_way_to_the_device_and_the_first_one_wins() {
    play(
        "
        a reboot is announced and reasoned and settled and only then asked for
          idle, command reboot, shows reboot, wait 29, did 0 journal; 0 publish, wait 600
          did 0 journal; 0 publish; 30 reason; 30 publish; 30 sync; 60 last sync; 60 operate; 180 exit
          shows reboot halted, device 60 reboot RebootCmd

        beside a zedagent of ours facts end the waits and nothing is left out
          idle, ours commands reboot, wait 60, device 2 reboot RebootCmd
          did 0 journal; 0 publish; 0 reason; 0 publish; 0 sync; 2 last sync; 2 operate

        beside another one the waits stay
          idle, command reboot, wait 60, device 60 reboot RebootCmd
          did 0 journal; 0 publish; 30 reason; 30 publish; 30 sync; 60 last sync; 60 operate

        beside a zedagent of ours applications have their time all the same
          idle, application a runs, ours commands reboot, wait 100, device -, shows reboot, application a halts, wait 2
          device 102 reboot RebootCmd

        a zedagent of ours that is heard in the middle ends the wait
          idle, command reboot, wait 10, ours commands reboot, wait 2, device 12 reboot RebootCmd

        a shutdown ends with applications down and stores no reason, and the agent goes on
          idle, command shutdown, wait 30, did 0 journal; 0 publish; 30 publish; 30 last sync; 30 operate
          took shutdown machine, wait 3600, last 30 journal done, shows shutdown halted
          space 0, shows shutdown halted maintenance

        of several commands at once a reboot goes first
          idle, command reboot shutdown poweroff, wait 60, device 60 reboot RebootCmd

        and a power-off before a shutdown
          idle, command shutdown poweroff, wait 60, device 60 poweroff RebootCmd

        a shutdown alone is done
          idle, command shutdown, wait 60, device 30 shutdown RebootCmd

        a command that is taken back is carried out all the same
          idle, command reboot, controller Success, wait 60, device 60 reboot RebootCmd

        an application that never halts is given up after three hundred seconds
          idle, application stuck runs, command reboot, wait 329, shows reboot, wait 1000, device 360 reboot RebootCmd
          shows reboot halted, at 330 says the operation continues: {\"stuck\"}
          says 60 waits for applications to halt

        applications nobody has told of yet may still run
          fresh, command reboot, wait 60, device -, heard applications, wait 30, device 90 reboot RebootCmd

        a device that refuses is asked again
          idle, command reboot, wait 60, took reboot refused, wait 29, device 60 reboot RebootCmd
          wait 1, device 60 reboot RebootCmd; 90 reboot RebootCmd, took reboot machine, wait 120, last 210 exit

        a stand-in leaves the agent where it is with nothing new to publish
          idle, command reboot, wait 60, took reboot stand-in, drain Cordoned DeviceOp, runs IMGA inprogress
          controller Fail, vault shut, wait 1000000
          did 0 journal; 0 publish; 30 reason; 30 publish; 30 sync; 60 last sync; 60 operate; 60 journal done

        an answer that nobody waits for changes nothing
          idle, command shutdown, wait 30, command shutdown reboot, took shutdown machine, wait 60
          device 30 shutdown RebootCmd; 90 reboot RebootCmd, took shutdown late, wait 120, last 210 exit

        a partition to be tried means nothing before it is known which one runs
          fresh, spare updating, wait 600, device -, runs IMGB inprogress, wait 60, device -

        the first status waits for the facts it speaks of
          fresh, controller Success, runs IMGA inprogress, published 0, heard drain, published 1, shows testing

        it does not wait for ever
          fresh, controller Success, wait 29, published 0, wait 1, published 1, at 30 says without word from

        a failed drain is still waited for
          idle, drain FailedCordon DeviceOp, shows draining

        so is one that failed later
          idle, drain FailedDrain DeviceOp, shows draining
    ",
    );
}

#[test]
fn b5_a_device_without_partitions_waits_for_none_of_them() {
    // baseosmgr has published all partitions that there are.
    tell(
        "fresh, controller Success, heard drain, heard applications, published 0, heard partitions, shows -, wait 60
        says 0 without word from, command reboot, wait 60, device 120 reboot RebootCmd",
    );
}

#[test]
fn each_limit_restarts_the_device_at_its_time_and_says_which_drain_is_skipped() {
    play(
        "
        a week without controller
          idle, controller Fail, wait 604860, device 604860 reboot Disconnect, maintenance never
          skipped Exceeded outage for controller connectivity 604800 by 0 seconds; rebooting without a drain. No

        the same outside of clusters
          idle, drain NotSupported None, controller Fail, wait 604860, device 604860 reboot Disconnect, skipped nothing

        an image in test
          in test, controller Fail, wait 360, device 360 reboot Fallback, maintenance never
          skipped Exceeded fallback outage for controller connectivity 300 by 0 seconds; rebooting without a drain. No

        a controller that stays
          in test, controller Success, wait 6048000, device -, skipped nothing, maintenance never

        no controller from the start
          fresh, runs IMGA inprogress, heard applications, wait 360, device 360 reboot Fallback
          skipped Exceeded fallback outage for controller connectivity 300 by 0 seconds; rebooting without a drain. No

        a limit that comes later
          in test, controller Fail, wait 100, fallback limit 60, wait 60, device 160 reboot Fallback
          skipped Exceeded fallback outage for controller connectivity 60 by 40 seconds; rebooting without a drain. No

        a vault that stays shut
          in test, vault shut 4 8 9, wait 360, device 360 reboot VaultFailure, maintenance never
          skipped Exceeded time for vault to be ready 300 by 0 seconds; possibly mismatching PCR indexes [4 8 9]
          skipped rebooting without a drain. No
    ",
    );
    for word in ["Success", "TemporaryFail"] {
        tell(&format!(
            "in test, controller Fail, wait 299, controller {word}, controller Fail, wait 360
            device 659 reboot Fallback, maintenance never, skipped 300 by 0 seconds; rebooting without a drain. No"
        ));
    }
    // A saved config or silence is no controller.
    for word in ["Never", "Fail", "ReadSaved", "Stranger(9)"] {
        tell(&format!(
            "in test, controller {word}, wait 200, controller {word}, wait 160
            device 360 reboot Fallback, maintenance never, skipped 300 by 0 seconds; rebooting without a drain. No"
        ));
    }
}

#[test]
fn what_a_limit_means_without_an_image_in_test_is_maintenance_while_it_lasts() {
    play(
        "
        a vault that stays shut means maintenance until it opens
          idle, vault shut, wait 300, maintenance VaultLockedUp, vault opening, maintenance VaultLockedUp
          vault open, maintenance over, device -

        a vault that nobody speaks of or that opens in time means nothing
          in test, wait 1000, vault shut, wait 299, vault open, vault shut, wait 299, vault silent, wait 1000
          device -, maintenance never

        the vault has its time from when the controller could first help
          fresh, vault shut, wait 1000, maintenance never, controller Success, wait 299, maintenance never
          wait 1, maintenance VaultLockedUp

        a full disk and refused certificates mean maintenance in the order in which they came
          idle, space 0, certificates refused, maintenance LowDiskSpace EdgeNodeCertsRefused
          space unknown, maintenance EdgeNodeCertsRefused
          space 0, maintenance EdgeNodeCertsRefused LowDiskSpace, space unknown, controller Success, maintenance over
    ",
    );
}

#[test]
fn an_image_passes_its_test_after_its_time_with_a_controller_and_once() {
    play(
        "
        an image passes after its time with a controller and baseosmgr takes it in either order
          trial, verdicts 2, passed 0, wait 50, controller Success, remaining 600, wait 10, remaining 590
          wait 589, remaining 10, verdicts 2, wait 1, verdict 650 IMGB passed, remaining 0, shows testing
          runs IMGB inprogress taken, verdict 650 IMGB open, runs IMGB active taken, shows -
          runs IMGB active, wait 10000, verdicts 4, device -

        a mark that is heard together with the acknowledgement ends the test too
          trial, controller Success, wait 600, runs IMGB active taken, verdict 600 IMGB open, shows -

        a verdict that was taken is not given twice
          trial, controller Success, wait 600, runs IMGB inprogress taken, runs IMGB inprogress, wait 10000, passed 1

        a controller that gives no config for now begins the time anew
          trial, controller Success, wait 500, controller TemporaryFail, remaining 600, wait 1000, remaining 600
          controller Success, wait 599, verdicts 2, wait 1, verdict 2100 IMGB passed

        a short loss of the controller does not stop the time
          trial, controller Success, wait 100, controller Fail, wait 250, controller Success, wait 250
          verdict 600 IMGB passed

        no test begins without a config
          trial, controller ReadSaved, wait 299, remaining 0

        or for a good image
          idle, wait 10000, passed 0

        an image gets no verdict while the machine goes down
          trial, controller Success, wait 590, command reboot, wait 100, verdicts 2

        a test begins anew with a restart of the agent
          trial, controller Success, wait 599, verdicts 2
    ",
    );
}
