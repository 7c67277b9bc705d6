#!/bin/sh
# Checks and measures the GPU of this machine with the program beside this script, and keeps what it says in
# the folder given as first argument (default: report). Further arguments go to coppice gpucheck.
#
# With SANITIZE=1 it also runs the small parts under NVIDIA's compute-sanitizer, if that is installed: accesses
# out of bounds, races, reads of memory never written, and barriers. Each tool takes minutes.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-report}
[ $# -gt 0 ] && shift
mkdir -p "$out" || exit 1
nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1
"$here/coppice" gpucheck --json "$out/report.json" --text "$out/report.txt" --profile "$out/profile.json" "$@" >"$out/log.txt" 2>&1
status=$?
cat "$out/log.txt"
if [ "${SANITIZE:-}" ]; then
	for tool in memcheck racecheck initcheck synccheck; do
		compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/coppice" gpucheck --parts driver,conformance,kernels \
			--json "$out/$tool.json" >"$out/$tool.txt" 2>&1
		code=$?
		echo "compute-sanitizer $tool: exit status $code, see $out/$tool.txt"
		[ $code -eq 0 ] || status=1
	done
fi
exit $status
