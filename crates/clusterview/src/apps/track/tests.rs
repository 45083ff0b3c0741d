//! Runs of a container that end, begin and back off, and what is read of them.

use jiff::Timestamp;

use super::super::samples::at;
use super::*;

fn line(nanos: i64) -> LogLine {
    let at = Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
    LogLine { at, text: String::new(), left_out: 0 }
}

fn run(restarts: u32, state: ContainerState) -> ContainerRun {
    ContainerRun { restarts, state, ending: false }
}

/// A reading with these lines; returns those passed on, `None` when all are doubted.
fn read(
    track: &mut ContainerTrack,
    now: Mono,
    lines: &[i64],
    outcome: ReadEnd,
) -> (LogRange, Option<Vec<i64>>) {
    let wanted = track.due(now).unwrap();
    assert!(track.is_reading() && track.due(now).is_none(), "one reading at a time");
    let news = track.sift(lines.iter().map(|nanos| line(*nanos)).collect());
    let told: Option<Vec<i64>> = news.map(|news| {
        for line in &news {
            track.mark.note(line.at);
        }
        news.iter().map(|line| i64::try_from(line.at.as_nanosecond()).unwrap()).collect()
    });
    track.ended(now, if told.is_some() { outcome } else { ReadEnd::Doubtful });
    (wanted, told)
}

/// A container with these lines passed on.
fn known(restarts: u32, lines: &[i64]) -> ContainerTrack {
    let mut mark = LogMark::fresh(restarts);
    for nanos in lines {
        mark.note(line(*nanos).at);
    }
    ContainerTrack::new(Some(mark), run(restarts, ContainerState::Running), at(0))
}

#[test]
fn a_container_is_read_every_ten_seconds_and_sooner_after_a_cut() {
    let mut track = known(0, &[1]);
    let (wanted, told) = read(&mut track, at(0), &[1, 2], ReadEnd::Whole);
    assert_eq!(
        (wanted.previous, wanted.since, told),
        (false, Some(line(1 - 1_000_000_000).at), Some(vec![2]))
    );
    assert_eq!((track.due(at(9)), track.next_wake()), (None, Some(at(10))));
    let (_, told) = read(&mut track, at(10), &[1, 2, 3], ReadEnd::Cut);
    assert_eq!((told, track.next_wake()), (Some(vec![3]), Some(at(11))));
    read(&mut track, at(11), &[1, 2, 3], ReadEnd::Failed);
    assert_eq!(track.next_wake(), Some(at(21)));
}

#[test]
fn a_container_that_has_not_begun_is_read_when_it_has() {
    let mut track = ContainerTrack::new(None, run(0, ContainerState::Waiting), at(0));
    assert_eq!((track.due(at(0)), track.next_wake()), (None, None));
    track.see(at(5), run(0, ContainerState::Running));
    assert!(track.due(at(5)).is_some());
}

#[test]
fn d_k23_lines_without_a_known_one_are_doubted_once_and_then_taken() {
    let mut track = ContainerTrack::new(None, run(0, ContainerState::Running), at(0));
    assert_eq!(read(&mut track, at(0), &[1, 2], ReadEnd::Whole).1, None);
    assert_eq!(track.next_wake(), Some(at(2)));
    assert_eq!(read(&mut track, at(2), &[1, 2], ReadEnd::Whole).1, Some(vec![1, 2]));
    // The node has rotated the old lines away.
    assert_eq!(read(&mut track, at(12), &[3], ReadEnd::Whole).1, None);
    assert_eq!(read(&mut track, at(14), &[3, 4], ReadEnd::Whole).1, Some(vec![3, 4]));
}

#[test]
fn d_k23_the_log_of_a_new_run_that_comes_before_its_news_is_not_taken_for_the_old_run() {
    let mut track = known(0, &[1]);
    // The run has changed, which is not known yet.
    assert_eq!(read(&mut track, at(0), &[100, 101], ReadEnd::Whole).1, None);
    track.see(at(1), run(1, ContainerState::Running));
    let (wanted, told) = read(&mut track, at(1), &[1, 2, 3], ReadEnd::Whole);
    assert_eq!((wanted.previous, wanted.ended, wanted.missed), (true, true, false));
    assert_eq!(told, Some(vec![2, 3]), "the rest of the old run first");
    let (wanted, told) = read(&mut track, at(1), &[100, 101], ReadEnd::Whole);
    assert_eq!((wanted.previous, wanted.since, told), (false, None, None));
    assert_eq!(read(&mut track, at(3), &[100, 101], ReadEnd::Whole).1, Some(vec![100, 101]));
    assert_eq!(track.mark.restarts, 1);
}

#[test]
fn the_rest_of_an_old_run_is_read_on_when_it_is_long_or_fails_and_given_up_when_it_is_gone() {
    let mut track = known(3, &[1]);
    track.see(at(0), run(4, ContainerState::Running));
    assert_eq!(read(&mut track, at(0), &[1, 2], ReadEnd::Cut).1, Some(vec![2]));
    let (wanted, told) = read(&mut track, at(1), &[1, 2, 3], ReadEnd::Failed);
    assert_eq!((wanted.previous, told), (true, Some(vec![3])));
    let (wanted, _) = read(&mut track, at(11), &[1, 2, 3], ReadEnd::Refused);
    assert_eq!((wanted.previous, track.next_wake(), &track.mark), (true, Some(at(11)), &LogMark::fresh(4)));
    assert!(!track.due(at(11)).unwrap().previous);
}

#[test]
fn runs_that_came_and_went_between_two_looks_are_told_as_missed() {
    let mut track = known(0, &[1]);
    track.see(at(0), run(5, ContainerState::Running));
    let wanted = track.due(at(0)).unwrap();
    assert_eq!((wanted.previous, wanted.since, wanted.missed), (true, None, true));
    assert_eq!(&track.mark, &LogMark::fresh(4));
    track.ended(at(0), ReadEnd::Whole);
    assert_eq!(&track.mark, &LogMark::fresh(5));
    // Backing off, the newest run is the one that has ended.
    track.see(at(1), run(6, ContainerState::BackingOff));
    let wanted = track.due(at(1)).unwrap();
    assert_eq!((wanted.previous, wanted.ended, wanted.missed, track.mark.restarts), (false, true, true, 6));
    // A number that is lower than before is that of a container made again.
    let mut track = known(7, &[1]);
    track.see(at(0), run(0, ContainerState::Running));
    assert_eq!((track.due(at(0)).unwrap().since, &track.mark), (None, &LogMark::fresh(0)));
}

#[test]
fn a_run_that_has_ended_is_read_to_its_end_and_no_more() {
    let mut track = known(0, &[1]);
    track.see(at(0), run(0, ContainerState::Ended));
    assert!(read(&mut track, at(0), &[1, 2], ReadEnd::Failed).0.ended);
    assert_eq!(read(&mut track, at(10), &[1, 2, 3], ReadEnd::Whole).1, Some(vec![3]));
    assert_eq!(track.next_wake(), None);
    track.see(at(20), run(1, ContainerState::Running));
    assert!(track.due(at(20)).unwrap().previous);
}

#[test]
fn what_changes_during_a_reading_is_read_right_after_it() {
    let mut track = known(0, &[1]);
    track.due(at(0)).unwrap();
    track.see(at(1), ContainerRun { ending: true, ..run(0, ContainerState::Running) });
    track.ended(at(2), ReadEnd::Whole);
    assert_eq!(track.next_wake(), Some(at(2)));
    track.see(at(2), run(0, ContainerState::Ended));
    track.due(at(2)).unwrap();
    track.ended(at(3), ReadEnd::Whole);
    assert_eq!(track.next_wake(), None);
}

#[test]
fn a_container_whose_pod_is_about_to_go_is_read_each_second_but_not_for_ever() {
    let mut track = known(0, &[1]);
    read(&mut track, at(0), &[1], ReadEnd::Whole);
    track.see(at(3), ContainerRun { ending: true, ..run(0, ContainerState::Running) });
    for secs in 3..63 {
        assert_eq!(track.next_wake(), Some(at(secs)));
        read(&mut track, at(secs), &[1], ReadEnd::Whole);
    }
    read(&mut track, at(63), &[1], ReadEnd::Whole);
    assert_eq!(track.next_wake(), Some(at(73)), "one that does not go is read as always");
    // Unknown lines are doubted for a moment only.
    let mut track =
        ContainerTrack::new(None, ContainerRun { ending: true, ..run(0, ContainerState::Ended) }, at(0));
    assert_eq!(read(&mut track, at(0), &[1, 2], ReadEnd::Whole).1, None);
    assert_eq!(track.next_wake(), Some(at(0) + LAST_DOUBT));
    assert_eq!(read(&mut track, at(1), &[1, 2], ReadEnd::Whole).1, Some(vec![1, 2]));
    assert_eq!(track.next_wake(), None);
}
