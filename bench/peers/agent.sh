#!/bin/sh
# agent.sh [OPTION...] ADDRESS COMMAND...: what a launcher takes for ssh. Runs the command in the network namespace that has the address
# (HOSTS="address=namespace ..."), under that namespace's name.
while [ "${1#-}" != "$1" ]; do shift; done
address=$1
shift
for pair in $HOSTS; do [ "${pair%%=*}" = "$address" ] && namespace=${pair#*=}; done
exec ip netns exec "${namespace:?no namespace has $address}" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$namespace" "$*"
