#!/usr/bin/env bash
# Known advisories against our dependencies. A finding fails; a list that cannot be fetched is said and passed over.
set -euo pipefail
output=$(cargo deny --log-level warn check advisories 2>&1) && { echo "advisories ok"; exit 0; }
if grep -qiE 'failed to fetch advisory database|failed to (clone|fetch)|unable to (fetch|clone|acquire)|could not resolve host' <<<"$output"; then
  echo "advisories: the list could not be fetched from here, so they were not checked"
  exit 0
fi
printf '%s\n' "$output" >&2
exit 1
