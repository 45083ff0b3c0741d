//! Something that is read whole, then followed, and read again when that fails.
//!
//! Not here: what is read (`longhorn`, `health`).

use futures::stream::{self, BoxStream, Stream, StreamExt};
use kubeapi::Error;
use kubeapi::pace::Pace;
use tokio::time::sleep;

/// What was read: what it shows, and where there is something to follow, what is kept of it and its updates.
pub(super) type FollowStart<T, P, S> = (S, Option<(T, BoxStream<'static, P>)>);

enum StorageFollowStep<T, P, S> {
    /// All is to be read, after a pause when it has failed before.
    Read,
    /// It was read, and is followed; what it has shown last.
    Follow(Box<T>, BoxStream<'static, P>, S),
    Over,
}

/// What `read` shows, and what `show` does whenever that has changed by updates that `take` takes in. A failure of either is
/// reported, and all is read again: a watch that continues says nothing of what has not changed. The stream never ends;
/// dropping it closes its connections.
pub(super) fn follow_read<T, P, S, F>(
    read: impl Fn() -> F + Send + Sync,
    take: impl Fn(&mut T, P) -> Option<Error> + Send + Sync,
    show: impl Fn(&T) -> S + Send + Sync,
    seed: u64,
) -> impl Stream<Item = Result<S, Error>> + Send
where
    T: Send,
    P: Send + 'static,
    S: Clone + PartialEq + Send,
    F: Future<Output = Result<FollowStart<T, P, S>, Error>> + Send,
{
    let state = (StorageFollowStep::Read, Pace::new(seed), 0_u32, (read, take, show));
    stream::unfold(state, |(mut at, mut pace, mut tries, calls)| async move {
        let (read, take, show) = &calls;
        let item = match &mut at {
            StorageFollowStep::Read => {
                if tries > 0 {
                    sleep(pace.pause(tries, None)).await;
                }
                read().await.map(|(first, kept)| {
                    at = match kept {
                        Some((kept, updates)) => {
                            StorageFollowStep::Follow(Box::new(kept), updates, first.clone())
                        }
                        None => StorageFollowStep::Over,
                    };
                    first
                })
            }
            StorageFollowStep::Follow(kept, updates, last) => loop {
                let Some(update) = updates.next().await else { std::future::pending().await };
                if let Some(error) = take(kept, update) {
                    at = StorageFollowStep::Read;
                    break Err(error);
                }
                let now = show(kept);
                if now != *last {
                    tries = 0;
                    last.clone_from(&now);
                    break Ok(now);
                }
            },
            StorageFollowStep::Over => std::future::pending().await,
        };
        if item.is_err() {
            tries = tries.saturating_add(1);
        }
        Some((item, (at, pace, tries, calls)))
    })
}
