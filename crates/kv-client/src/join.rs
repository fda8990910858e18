//! Several futures in one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Most futures driven at a time; further ones wait.
const AT_ONCE: usize = 64;

/// Waits until all have succeeded, or the first one fails: the others are dropped then. What they return is in
/// their order.
///
/// # Errors
/// That of the first one that failed.
pub async fn try_all<T, E, F>(futures: Vec<F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = futures.into_iter().enumerate();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut done: Vec<(usize, T)> = Vec::new();
    let mut start = |running: &mut Vec<(usize, Pin<Box<F>>)>| {
        let room = AT_ONCE - running.len();
        running.extend(waiting.by_ref().take(room).map(|(place, future)| (place, Box::pin(future))));
    };
    start(&mut running);
    while !running.is_empty() {
        poll_fn(|context| {
            let mut progress = false;
            let mut index = 0;
            while let Some((place, future)) = running.get_mut(index) {
                match future.as_mut().poll(context) {
                    Poll::Pending => index += 1,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(value)) => {
                        done.push((*place, value));
                        running.swap_remove(index);
                        progress = true;
                    }
                }
            }
            if progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        start(&mut running);
    }
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn all_are_driven_together_and_answer_in_order() {
        let (first, second) = (Notify::new(), Notify::new());
        let turn = |mine: &'static str| {
            let (wait, wake) = if mine == "a" { (&first, &second) } else { (&second, &first) };
            async move {
                wake.notify_one();
                wait.notified().await;
                Ok::<_, ()>(mine)
            }
        };
        assert_eq!(try_all(vec![turn("a"), turn("b")]).await, Ok(vec!["a", "b"]));
        assert_eq!(try_all(Vec::<std::future::Ready<Result<(), ()>>>::new()).await, Ok(vec![]));
    }

    #[tokio::test]
    async fn no_more_than_the_bound_run_at_a_time() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |number: usize| {
            let (running, most) = (&running, &most);
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
                if number == 500 { Err(number) } else { Ok(number) }
            }
        };
        assert_eq!(try_all((0..300).map(one).collect()).await, Ok((0..300).collect()));
        assert_eq!(most.load(Ordering::Relaxed), AT_ONCE);
        assert_eq!(try_all((400..600).map(one).collect()).await, Err(500));
    }
}
