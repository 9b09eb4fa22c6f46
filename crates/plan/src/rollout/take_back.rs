//! Instances that two planners have promised the same memory are taken back before they run.

use super::plan::Work;
use super::standing::Standing;
use towpath_types::spec::Wanted;

impl Work<'_> {
    /// Takes back what its cell has no memory for. What runs already is left alone.
    pub(super) fn take_back_overpromised(&mut self) {
        for (assignment, standing) in self.running() {
            let coming = matches!(standing, Standing::Coming { .. });
            if coming
                && assignment.wanted == Wanted::Run
                && self.input.overpromised.contains(&assignment.instance)
            {
                self.let_go(assignment.instance, standing, "its cell has no memory left for it");
                self.wake_soon();
            }
        }
    }
}
