//! The lane of a request: where it is read, and what an unknown tag does.

use crate::pick::NoPick;
use crate::request::{RequestView, Unescaped, baggage, cookies, lines, parameters, trim};
use crate::table::{Match, Table};
use crate::tag::Tag;
use towpath_types::LaneName;
use towpath_types::lane::{LaneMode, LanePolicy};

/// Where a lane tag was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneSource {
    /// The space's lane header.
    Header,
    /// The space's lane cookie.
    Cookie,
    /// The space's lane parameter of the query.
    Query,
    /// `<lane>--<app>.<domain>`.
    HostLabel,
    /// The `towpath.lane` member of W3C `baggage`.
    Baggage,
    /// An entry rule of the route (its number, from 0).
    Entry(usize),
}

impl LaneSource {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            LaneSource::Header => "header",
            LaneSource::Cookie => "cookie",
            LaneSource::Query => "query parameter",
            LaneSource::HostLabel => "host label",
            LaneSource::Baggage => "baggage",
            LaneSource::Entry(_) => "entry rule",
        }
    }
}

/// The tag that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The lane that was asked for.
    pub tag: Tag,
    /// Where.
    pub source: LaneSource,
}

/// Why a request is in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneReason {
    /// Nothing asked for a lane.
    Untagged,
    /// The lane that was asked for.
    Asked,
    /// There are only malformed tags; base instead.
    Malformed,
    /// The tag names no lane of the space; base instead.
    Unknown,
    /// The app has no group in the lane; base instead.
    NotInApp,
}

impl LaneReason {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            LaneReason::Untagged => "the request has no lane tag",
            LaneReason::Asked => "the request asked for it",
            LaneReason::Malformed => "the request's lane tag is no valid name, so base serves",
            LaneReason::Unknown => "the lane asked for does not exist in the space, so base serves",
            LaneReason::NotInApp => "the app has no group in the lane asked for, so base serves",
        }
    }
}

/// The lane of a request. Which lane *serves* is known when an endpoint is picked: see [`crate::Pick::lane`].
#[derive(Debug, Clone, Copy)]
pub struct LaneChoice<'t> {
    /// The lane whose endpoints come first.
    pub lane: &'t LaneName,
    /// What the request asked for.
    pub asked: Option<Asked>,
    /// Why it is that lane.
    pub reason: LaneReason,
}

/// What was found while going through the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    OnlyMalformed,
    Tag(Asked),
}

/// The first valid tag, in the order of the sources. Empty values count as absent.
pub(crate) fn read_tag(policy: &LanePolicy, host_lane: Option<&[u8]>, request: &impl RequestView) -> Found {
    let mut malformed = false;
    let mut check = |value: &[u8], source: LaneSource| {
        let text = match source {
            LaneSource::Header | LaneSource::HostLabel => None,
            _ => Unescaped::read(value),
        };
        let value = text.as_ref().map_or(value, Unescaped::as_bytes);
        if value.is_empty() {
            return None;
        }
        let tag = Tag::read(value);
        malformed |= tag.is_none();
        tag.map(|tag| Asked { tag, source })
    };
    let mut found = None;
    if !policy.header.is_empty() {
        found = lines(request, &policy.header).find_map(|value| check(trim(value), LaneSource::Header));
    }
    if found.is_none() && !policy.cookie.is_empty() {
        found = lines(request, "cookie")
            .flat_map(|line| cookies(line, &policy.cookie))
            .find_map(|value| check(value, LaneSource::Cookie));
    }
    if found.is_none()
        && !policy.query.is_empty()
        && let Some(query) = request.query()
    {
        found = parameters(query, &policy.query).find_map(|value| check(value, LaneSource::Query));
    }
    if found.is_none()
        && let Some(label) = host_lane
    {
        found = check(label, LaneSource::HostLabel);
    }
    if found.is_none() && (policy.trust_baggage || request.inside()) {
        found = lines(request, "baggage")
            .flat_map(|line| baggage(line, "towpath.lane"))
            .find_map(|value| check(value, LaneSource::Baggage));
    }
    match found {
        Some(asked) => Found::Tag(asked),
        None if malformed => Found::OnlyMalformed,
        None => Found::Nothing,
    }
}

impl Table {
    /// The lane of a request that matched. Only a space with strict lanes gives an error, [`NoPick::UnknownLane`].
    pub fn lane<'t>(
        &'t self,
        matched: &Match<'t>,
        request: &impl RequestView,
    ) -> Result<LaneChoice<'t>, NoPick> {
        let policy = matched.policy();
        let base = self.base();
        let strict = policy.mode == LaneMode::Strict;
        let (asked, by_rule) = match read_tag(policy, matched.host_lane(), request) {
            Found::Tag(asked) => (asked, false),
            Found::OnlyMalformed if strict => return Err(NoPick::UnknownLane),
            Found::OnlyMalformed => {
                return Ok(LaneChoice { lane: base, asked: None, reason: LaneReason::Malformed });
            }
            Found::Nothing => match matched.entry(request) {
                Some(asked) => (asked, true),
                None => return Ok(LaneChoice { lane: base, asked: None, reason: LaneReason::Untagged }),
            },
        };
        let tag = asked.tag.as_str();
        let (lane, reason) = if tag == LaneName::BASE {
            (base, LaneReason::Asked)
        } else if let Some(lane) = matched.lane_of_app(tag) {
            (lane, LaneReason::Asked)
        } else if matched.lane_of_space(tag) {
            (base, LaneReason::NotInApp)
        } else if strict && !by_rule {
            return Err(NoPick::UnknownLane);
        } else {
            (base, LaneReason::Unknown)
        };
        Ok(LaneChoice { lane, asked: Some(asked), reason })
    }
}
