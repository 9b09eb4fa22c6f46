//! Checks of settings that the types do not make by themselves.

use towpath_types::upstream::UpstreamSpec;

/// Checks an app's settings; `Err` says which field is wrong and what would be right.
pub(crate) fn upstream(spec: &UpstreamSpec) -> Result<(), String> {
    let shares = [
        ("retry.budget", spec.retry.budget),
        ("ejection.rate", spec.ejection.rate),
        ("ejection.max_share", spec.ejection.max_share),
        ("spill_below", spec.spill_below),
        ("load_weights.host_part", spec.load_weights.host_part),
    ];
    for (field, value) in shares {
        if !(0.0..=1.0).contains(&value) {
            return Err(format!("upstream.{field} is {value}; it lies between 0 and 1"));
        }
    }
    let weights = [
        ("host_cpu", spec.load_weights.host_cpu),
        ("host_mem", spec.load_weights.host_mem),
        ("host_io", spec.load_weights.host_io),
        ("inst_cpu", spec.load_weights.inst_cpu),
        ("inst_mem", spec.load_weights.inst_mem),
        ("inst_io", spec.load_weights.inst_io),
    ];
    for (field, value) in weights {
        if !(value.is_finite() && (0.0..=1000.0).contains(&value)) {
            return Err(format!("upstream.load_weights.{field} is {value}; it lies between 0 and 1000"));
        }
    }
    Ok(())
}
