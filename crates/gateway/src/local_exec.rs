//! hyper's tasks on the present thread.

/// Spawns on the worker's own `LocalSet`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalExec;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExec {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
