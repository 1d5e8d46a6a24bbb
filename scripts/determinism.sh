#!/usr/bin/env bash
# Runs the scenarios of determinism/ in every way that must not show in the results, and compares all files of the results
# folders with those of the first way, byte for byte: amd64 at levels v1 and v3 and arm64 (under qemu-user-static where the
# machine is another one), with 1, 2 and 8 processors, jumping over decode steps and walking through them; with the
# reference pool instead of the extent pool; and as on a processor without AVX2, FMA and the like.
#
# What cannot run on this machine is skipped, said and counted; STRICT=1 makes that a failure. KEEP=folder keeps what
# differs. The exit status is 1 when anything differs or fails.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
STRICT=${STRICT:-0}
KEEP=${KEEP:-}
PROCESSORS="1 2 8"
MODES="jump walk"

work=$(mktemp -d "${TMPDIR:-/tmp}/determinism.XXXXXX")
trap 'rm -rf "$work"' EXIT
host=$($GO env GOHOSTARCH)
compared=0 files=0 differ=0 skipped=0

# What to run, one line each: a name and the arguments of sluice. The comparison runs its arms side by side.
runs=(
	"pressure run determinism/pressure.yaml"
	"gate compare determinism/gate.yaml --vary policy.gate=session,none --vary policy.router=lmetric,sticky --jobs 4"
	"rollout run determinism/rollout.yaml"
	"large run determinism/large.yaml"
)

# emulator ARCH prints the command that runs binaries of that architecture here, nothing for the machine's own; it fails
# when there is none.
emulator() {
	[ "$1" = "$host" ] && return 0
	case $1 in
	amd64) command -v qemu-x86_64-static ;;
	arm64) command -v qemu-aarch64-static ;;
	*) return 1 ;;
	esac
}

# sums FOLDER prints the digest of every file below it.
sums() { (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum); }

skip() {
	echo "SKIPPED $1: $2" >&2
	skipped=$((skipped + $3))
}

# run_all LABEL PROCESSORS FLAGS COMMAND... runs every line of runs and compares it with the first way.
run_all() {
	local label=$1 processors=$2 flags=$3 line name out
	shift 3
	for line in "${runs[@]}"; do
		name=${line%% *}
		out=$work/out
		rm -rf "$out"
		# shellcheck disable=SC2086 # arguments and flags are lists
		if ! GOMAXPROCS=$processors "$@" ${line#* } $flags --out "$out" >"$work/stdout" 2>"$work/stderr"; then
			echo "FAILED  $name on $label" >&2
			cat "$work/stderr" >&2
			differ=$((differ + 1))
			continue
		fi
		sums "$out" >"$work/sums"
		if [ ! -e "$work/$name.sums" ]; then
			cp "$work/sums" "$work/$name.sums"
			cp -r "$out" "$work/$name.first"
			files=$((files + $(wc -l <"$work/sums")))
			continue
		fi
		compared=$((compared + 1))
		if ! cmp -s "$work/sums" "$work/$name.sums"; then
			differ=$((differ + 1))
			echo "DIFFERS $name on $label:" >&2
			diff "$work/$name.sums" "$work/sums" >&2 || true
			if [ -n "$KEEP" ]; then
				mkdir -p "$KEEP"
				rm -rf "$KEEP/$name.first" "$KEEP/$name.$label"
				cp -r "$work/$name.first" "$out" "$KEEP"
				mv "$KEEP/out" "$KEEP/$name.$label"
			fi
		fi
	done
}

ways=$(($(wc -w <<<"$PROCESSORS") * $(wc -w <<<"$MODES") * ${#runs[@]}))
targets="amd64/v1 amd64/v3 arm64"

# All binaries first: they are of the same sources even while these change.
for target in $targets; do
	level=
	[ "${target%/*}" = amd64 ] && level=${target#*/}
	CGO_ENABLED=0 GOOS=linux GOARCH=${target%/*} GOAMD64=$level \
		$GO build -buildvcs=false -o "$work/sluice-${target/\//-}" ./cmd/sluice
done

for target in $targets; do
	arch=${target%/*} binary=$work/sluice-${target/\//-}
	if ! under=$(emulator "$arch"); then
		skip "$target" "no emulator for $arch here; install qemu-user-static" "$ways"
		continue
	fi
	if ! $under "$binary" version >/dev/null 2>"$work/stderr"; then
		skip "$target" "its binary does not start here ($(head -n1 "$work/stderr"))" "$ways"
		continue
	fi
	for mode in $MODES; do
		flags=
		[ "$mode" = walk ] && flags=--walk
		for processors in $PROCESSORS; do
			start=$SECONDS
			run_all "${target/\//-}-$processors-$mode" "$processors" "$flags" $under "$binary"
			echo "$target, $processors processors, $mode: $((SECONDS - start)) s"
		done
	done
	if [ -z "$under" ] && [ "$target" != amd64/v3 ]; then
		run_all "${target/\//-}-reference-pool" 2 --reference-pool "$binary"
		echo "$target, reference pool"
		GODEBUG=cpu.all=off run_all "${target/\//-}-plain" 2 "" "$binary"
		echo "$target, no optional instructions"
	fi
done

echo "$compared results folders compared with the first of their scenario ($files files in these), $differ differ, $skipped skipped"
[ "$differ" -eq 0 ] || exit 1
[ "$skipped" -eq 0 ] || [ "$STRICT" != 1 ] || exit 1
