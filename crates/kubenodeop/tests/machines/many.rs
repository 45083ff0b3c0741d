//! Twenty machines of which five may move at once: no slower than KubeVirt's own places allow.

use crate::stage::machines::{floor, ours};

#[tokio::test(start_paused = true)]
async fn twenty_machines_of_which_five_may_move_at_once_take_at_most_a_tenth_longer_than_kubevirt_needs() {
    let floor = floor().await.unwrap();
    let ours = ours().await.unwrap();
    assert_eq!(ours.migrations, (20, 5));
    let took = ours.took;
    assert!(
        took.as_secs_f64() <= floor.as_secs_f64() * 1.1,
        "{took:?} for the drain, {floor:?} for the floor"
    );
    assert!(ours.requests > 0);
}
