# What first.sh, second.sh and third.sh begin with; docs/gpu-queue.md says what to carry.
# With REHEARSAL=1 all sizes are small, for the fake driver of the tests.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-gpu}
mkdir -p "$out"
# The driver keeps what it compiles.
export MEZZO_CUDA_TEST=gpu CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-${TMPDIR:-/var/tmp}/mezzo-gpu-cache}
small=${REHEARSAL:+-small}
# if_real COMMAND… is left out of a rehearsal; real A B is A on a GPU, B in a rehearsal.
if_real() { [ -n "$small" ] || "$@"; }
real() { [ -n "$small" ] && printf %s "$2" || printf %s "$1"; }
# Where Python keeps NVIDIA's libraries. The program looks there by itself; this is for a
# Python that PATH does not find.
python=${PYTHON:-python3}
if [ -z "${MEZZO_CUDA_LIBS:-}" ]; then
  libs=$("$python" -c 'import nvidia, glob, os
print(":".join(sorted({os.path.dirname(p) for r in nvidia.__path__ for p in glob.glob(r + "/*/lib/libcu[bd]*.so*")})))' 2>/dev/null)
  [ -z "$libs" ] || export MEZZO_CUDA_LIBS=$libs
fi
most=${MOST:-580} # seconds of the call
# step LIMIT [NAME=VALUE…] COMMAND… runs a command for at most so many seconds, and no
# longer than the call has. What it prints is seen at once.
step() {
  local limit=$1 left=$((most - SECONDS)) rc
  shift
  printf '\n== [%d s] %s\n' "$SECONDS" "$*"
  if [ "$left" -le 5 ]; then
    echo "left out: the call has no time left"
    return
  fi
  timeout -k 5 $((limit < left ? limit : left)) env "$@" 2>&1
  rc=$?
  [ $rc = 0 ] || echo "exit status $rc$([ $rc = 124 ] && echo ': out of time')"
}
