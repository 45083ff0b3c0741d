#!/usr/bin/env bash
# The drill of a power cut on a real site, as docs/operate/site.md describes it: says what to do, waits until it is done, looks
# with `zedbox verify`, and ends with the time of each step. It writes nothing in the cluster.
#
#   docs/drill.sh NODE [--kubeconfig FILE]
#
# NODE is the one that is in the middle of a reboot when the power goes. Run it on a machine that keeps its power and has a
# kubeconfig. SERVERS is how many servers the site has (3). ZEDBOX names the program where it is not on the path, LIMIT the
# seconds that the site has to be well again.
set -euo pipefail

node=${1:?"which node reboots first: docs/drill.sh NODE [--kubeconfig FILE]"}
shift
zedbox=${ZEDBOX:-zedbox}
limit=${LIMIT:-1800}
servers=${SERVERS:-3}
# The fewest that have a quorum.
quorum=$((servers / 2 + 1))
report=()

# A step that a person does.
step() {
  local begun=$SECONDS
  printf '\n== %s\n' "$1"
  read -r -p 'Enter once it is done (Ctrl-C ends the drill): '
  report+=("$((SECONDS - begun)) s  $1")
}

# A look that must find nothing worse than warnings.
look() {
  local begun=$SECONDS what=$1 code=0
  shift
  printf '\n== %s\n' "$what"
  "$zedbox" verify "$@" || code=$?
  report+=("$((SECONDS - begun)) s  $what (zedbox verify ended with $code)")
  if [ "$code" != 0 ] && [ "$code" != 4 ]; then
    printf '\nStopped: %s. Do what is named above, then begin again.\n' "$what"
    exit "$code"
  fi
}

look 'before the power cut' "$@"
step 'take a snapshot of etcd, on a server: k3s etcd-snapshot save'
step "order a reboot of $node by the controller, and wait until zedbox status on it says draining"
step 'switch off the power of all nodes at once'
if [ "$quorum" -gt 1 ]; then
  step "switch on $((quorum - 1)) of $servers servers and wait 5 min: kubectl is not answered, zedbox status says what it waits for"
fi
step "switch on one more, so that $quorum of $servers are on: the API answers, and the nodes become schedulable"
step 'switch on the others; or leave one off, and no other node reboots while zedbox lock status names it'
look 'after the power cut' --wait --timeout "$limit" "$@"
step "on $node: zedbox history shows one reboot, behind a second drain; zedbox lock status shows no holder"

printf '\nThe drill has ended:\n'
printf '  %s\n' "${report[@]}"
