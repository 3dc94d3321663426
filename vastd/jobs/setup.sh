# Sets a machine up: system packages, pip phases, then proof that Python and the GPUs work.
#
# Rules
# 1. POSIX sh, sourced in front of the calls; each call that fails ends the set-up.
# 2. Every step ends in one line "[setup JOB] NAME: ok, DETAIL" or "…: failed, DETAIL"; whoever
#    wants to know what happened reads these lines.
# 3. All of it may be repeated: what is there already is not installed again.

# The container is ours and ends with the rental, so a distribution's own mark on its Python
# (PEP 668) protects nobody here. Nobody is there to answer questions, and bars fill logs.
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off DEBIAN_FRONTEND=noninteractive

setup_says() { # NAME WORD DETAIL: only one line, and not a long one
  printf '[setup %s] %s: %s%s\n' "$VASTD_JOB_ID" "$1" "$2" \
    "${3:+, $(printf '%s' "$3" | tr '\n\r\t' '   ' | cut -c 1-300)}"
}

setup_within() { # SECONDS COMMAND...
  if command -v timeout >/dev/null 2>&1; then timeout -k 10 "$@"; else shift && "$@"; fi
}

setup_step() { # SECONDS NAME COMMAND...: runs it and says how it went
  step_limit=$1 step_name=$2 step_code=0
  shift 2
  printf '\n$ %s\n' "$*"
  setup_within "$step_limit" "$@" </dev/null || step_code=$?
  case $step_code in
    0) setup_says "$step_name" ok "$step_detail" ;;
    124 | 137) setup_says "$step_name" failed "ended after $step_limit s, or killed" ;;
    *) setup_says "$step_name" failed "exit code $step_code" ;;
  esac
  return "$step_code"
}

setup_python() { # the one `python` means, as long as it is a Python 3
  for python in python python3; do
    python_said=$("$python" -c 'import sys
assert sys.version_info >= (3,)
print(".".join(map(str, sys.version_info[:3])), "at", sys.executable)' 2>/dev/null) || continue
    setup_says python ok "$python_said"
    return 0
  done
  setup_says python failed "the image has no python; choose another with --image"
  return 1
}

setup_apt() { # SECONDS PACKAGE...
  apt_limit=$1
  shift
  step_detail="$*"
  apt_missing=''
  for apt_package; do
    dpkg -s "$apt_package" >/dev/null 2>&1 || apt_missing=1
  done
  if [ -z "$apt_missing" ]; then
    setup_says apt ok "$* (already there)"
    return 0
  fi
  if ! command -v apt-get >/dev/null 2>&1; then
    setup_says apt failed "the image has no apt-get"
    return 1
  fi
  # A fresh image has no package lists; Vast's own start script may hold the lock for a while.
  printf '\n$ apt-get update\n'
  setup_within "$apt_limit" apt-get -o DPkg::Lock::Timeout=120 -q update </dev/null
  setup_step "$apt_limit" apt \
    apt-get -o DPkg::Lock::Timeout=120 -q install -y --no-install-recommends -- "$@"
}

setup_pip() { # SECONDS NAME ARGUMENTS...
  pip_limit=$1 step_detail="${3:-}${4:+ $4}"
  pip_name=$2
  shift 2
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    setup_says "$pip_name" failed "this python has no pip; choose another image, or --packages python3-pip"
    return 1
  fi
  setup_step "$pip_limit" "$pip_name" "$python" -m pip install "$@"
}

setup_gpus() { # COUNT
  if ! gpus_said=$(setup_within 30 nvidia-smi --query-gpu=name --format=csv,noheader 2>&1); then
    setup_says nvidia-smi failed "$gpus_said"
    return 1
  fi
  gpus_count=$(printf '%s\n' "$gpus_said" | grep -c .)
  gpus_first=$(printf '%s\n' "$gpus_said" | head -n 1)
  if [ "$gpus_count" -lt "$1" ]; then
    setup_says nvidia-smi failed "$gpus_count GPUs, not $1"
    return 1
  fi
  setup_says nvidia-smi ok "${gpus_count}x $gpus_first"
}

setup_torch() { # COUNT: an import proves nothing (ENV-10), so every GPU has to compute
  torch_said=$(setup_within 300 "$python" -c '
import sys
import torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print("torch", torch.__version__, "for CUDA", torch.version.cuda, "sees", count, "GPUs")
for number in range(count):
    square = torch.ones(8, 8, device=f"cuda:{number}")
    assert float((square @ square).sum()) == 512.0
sys.exit(count < int(sys.argv[1]))' "$1" 2>&1) || {
    setup_says torch failed "$(printf '%s\n' "$torch_said" | tail -n 1)"
    printf '%s\n' "$torch_said"
    return 1
  }
  setup_says torch ok "$(printf '%s\n' "$torch_said" | tail -n 1)"
}

setup_done() {
  setup_says 'set up' ok "in $(pwd)"
}
