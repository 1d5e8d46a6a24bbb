#!/usr/bin/env bash
# Looks for known vulnerabilities that the program can reach, with the reports that golang.org/x/vulndb carries as a module: no
# database has to be reachable. Fails if one is in a dependency, or if one is in the standard library and README.md does not
# name a Go release without it. GOTOOLCHAIN=go1.26.10 make vuln looks at what another Go would build.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
mod=(-modfile=tools/vuln.mod)

mkdir -p build
$GO mod download "${mod[@]}" golang.org/x/vulndb
reports=$($GO list "${mod[@]}" -m -f '{{.Dir}}/data/osv' golang.org/x/vulndb)
rm -rf build/vulndb
$GO tool "${mod[@]}" indexdb -vulns "$reports" -out build/vulndb
status=0
$GO tool "${mod[@]}" govulncheck -db "file://$PWD/build/vulndb" ./... >build/vuln.txt || status=$?
echo "$($GO env GOVERSION), reports of $($GO list "${mod[@]}" -m -f '{{.Version}}' golang.org/x/vulndb)"
case $status in
0) echo "no known vulnerability can be reached" ;;
3)
	awk '/^Vulnerability/ { id = $NF } /Found in:/ { at = $3 } /Fixed in:/ { print id, at, "fixed in", $3 }' build/vuln.txt
	if grep 'Found in:' build/vuln.txt | grep -qv '@go[0-9]'; then
		echo "a dependency has a vulnerability that can be reached: build/vuln.txt" >&2
		exit 1
	fi
	if grep 'Fixed in:' build/vuln.txt | grep -qv '@go[0-9]'; then
		echo "no Go release is without one of these: build/vuln.txt" >&2
		exit 1
	fi
	go=$(sed -n 's/.*Fixed in: .*@go//p' build/vuln.txt | sort -V | tail -n1)
	if ! grep -q "Go $go or later" README.md; then
		echo "README.md does not say that Go $go or later is needed" >&2
		exit 1
	fi
	echo "all are in the standard library; Go $go or later has none of them, as README.md says"
	;;
*) cat build/vuln.txt; exit "$status" ;;
esac
