# What all scripts here begin with: `. "$(dirname "$0")/common.sh"`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0
# .ci/vet has vetted what go test would vet. Compilers collect no garbage, and write no
# tables for debuggers: a fifth less processor time. Tests do not get the first of these
# from the environment.
export GOFLAGS="-vet=off -toolexec=$PWD/.ci/toolexec -gcflags=all=-dwarf=false"
nested='keras/serving/grpc keras/distribution/mpi' # modules
# The tool is built once, without cgo.
staticcheck() {
  local version=v0.7.0
  local at=/tmp/mezzo-ci-staticcheck-$version
  [ -x "$at/staticcheck" ] || GOBIN=$at CGO_ENABLED=0 GOOS= GOARCH= go install honnef.co/go/tools/cmd/staticcheck@$version
  "$at/staticcheck" -checks inherit,-ST1005 "$@"
}
# needs COMMAND PACKAGE: installs a package for a command if it can. Scripts that run at
# the same time take turns: apt-get fails while another one has its lock.
needs() {
  command -v "$1" >/dev/null && return
  flock /tmp/mezzo-ci-apt sh -c 'apt-get update && apt-get install -y "$1"' sh "$2" >/dev/null 2>&1 || true
  command -v "$1" >/dev/null
}
