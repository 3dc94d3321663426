# The guard's other half: renewing the lease from outside, and ending jobs when it ran out.
#
# Rules
# 1. POSIX sh. The daemon sends it in front of its calls, after the runner; `guard_core.sh`, which
#    onstart has started, runs the copy beside it as `guard.sh wind_down`.
# 2. A lease is a duration. Only this machine's clock makes an instant of it.
# 3. What is answered was read back from the files and processes that will act, not from arguments.

vastd_lease_home() { # sets lease_home
  lease_home=${HOME:-/root}/.vastd
  (umask 077 && mkdir -p "$lease_home/uncollected")
}

vastd_lease_put() { # NAME TEXT: also on a full disk, where an old lease would end a healthy machine
  vastd_put "$lease_home/$1" "$2" 2>/dev/null && return 0
  rm -f "$lease_home/$1.tmp.$$"
  printf '%-20s\n' "$2" 1<>"$lease_home/$1"
}

vastd_lease_number() { # NAME: prints it, or nothing
  vastd_get "$lease_home/$1" | sed -n 's/^\([0-9][0-9]*\) *$/\1/p'
}

vastd_lease_lives() { # sets lease_pid; fails when no guard runs
  lease_pid=$(vastd_get "$lease_home/pid")
  case $lease_pid in '' | *[!0-9]*) return 1 ;; esac
  vastd_stat "$lease_pid" && grep -qs guard_core "/proc/$lease_pid/cmdline"
}

vastd_lease_write() { # NAME TEXT: only what differs, so that a running script is not edited
  [ "$(cat "$lease_home/$1" 2>/dev/null)" = "$2" ] && return 1
  vastd_put "$lease_home/$1" "$2"
}

# CORE and GUARD are the texts of both halves; LEASE_S is what a restarted container gets.
vastd_lease_install() { # CORE GUARD LEASE_S
  vastd_lease_home
  rm -f "$lease_home/released"
  vastd_lease_write guard.sh "$2"
  if vastd_lease_write guard_core.sh "$1" && vastd_lease_lives; then
    kill "$lease_pid"
    install_left=40
    while vastd_stat "$lease_pid" && [ "$install_left" -gt 0 ]; do
      install_left=$((install_left - 1))
      sleep 0.05 2>/dev/null || { sleep 1 && install_left=0; }
    done
  fi
  vastd_lease_lives && return 0
  vastd_lease_get_variables
  if command -v setsid >/dev/null 2>&1; then
    setsid sh "$lease_home/guard_core.sh" "$3" </dev/null >/dev/null 2>&1 &
  else
    nohup sh "$lease_home/guard_core.sh" "$3" </dev/null >/dev/null 2>&1 &
  fi
  install_left=60
  until vastd_lease_lives || [ "$install_left" -le 0 ]; do
    install_left=$((install_left - 1))
    sleep 0.05 2>/dev/null || { sleep 1 && install_left=0; }
  done
}

vastd_lease_get_variables() { # SSH sessions may lack what the first process has (VAST_API 13)
  for lease_name in CONTAINER_ID CONTAINER_API_KEY VAST_URL; do
    eval "lease_value=\${$lease_name:-}"
    [ -n "$lease_value" ] || lease_value=$(tr '\0' '\n' </proc/1/environ 2>/dev/null |
      sed -n "s/^$lease_name=//p")
    [ -z "$lease_value" ] || export "$lease_name=$lease_value"
  done
}

# Seconds from now on. Of UNCOLLECTED jobs the results are not home, SETTLED ones left nothing here.
vastd_lease_renew() { # SECONDS HARD_SECONDS ON_EXPIRY UNCOLLECTED SETTLED
  vastd_lease_home
  # The marks first: should the rest fail, an end is rather a stop.
  for lease_job in $4; do vastd_lease_mark "$lease_job"; done
  for lease_job in $5; do rm -f "$lease_home/uncollected/$lease_job"; done
  lease_now=$(date +%s)
  vastd_lease_put on_expiry "$3" && vastd_lease_put hard $((lease_now + $2)) &&
    vastd_lease_put expiry $((lease_now + $1))
}

vastd_lease_mark() { # JOB: its results are not home
  [ -e "$lease_home/uncollected/$1" ] || : >"$lease_home/uncollected/$1"
}

vastd_lease_show() { # what would happen, as the machine itself has it
  vastd_lease_home
  echo "clock=$(date +%s)"
  for lease_name in expiry hard; do
    lease_value=$(vastd_lease_number "$lease_name")
    [ -z "$lease_value" ] || echo "$lease_name=$lease_value"
  done
  echo "on_expiry=$(vastd_get "$lease_home/on_expiry")"
  echo "uncollected=$(ls "$lease_home/uncollected" 2>/dev/null | tr '\n' ' ')"
  [ ! -e "$lease_home/ending" ] || echo "ending=1"
  vastd_lease_lives && echo "guard=$lease_pid"
  vastd_lease_get_variables
  [ -z "${CONTAINER_ID:-}" ] || echo "instance=$CONTAINER_ID"
  [ -z "${CONTAINER_API_KEY:-}" ] || echo "key=1"
  for lease_tool in curl wget python3 python; do
    command -v "$lease_tool" >/dev/null 2>&1 && echo "tool=$lease_tool" && break
  done
  return 0
}

# CORE GUARD LEASE_S as above, WORKSPACE GRACE_S SALVAGE for an end, the rest as in `renew`.
vastd_lease_hold() { # CORE GUARD LEASE_S WORKSPACE GRACE_S SALVAGE SECONDS HARD_SECONDS ...
  vastd_lease_home
  vastd_lease_write settings "$(
    for hold_word in "$4" "$5" "$6"; do vastd_quote "$hold_word" && printf ' '; done
  )"
  # First, so that a guard that is started by this finds no old lease that ran out; and once more,
  # because at its start it forgets the hard limit.
  vastd_lease_renew "$7" "$8" "$9" "${10}" "${11}" || return 1
  vastd_lease_install "$1" "$2" "$3"
  vastd_lease_renew "$7" "$8" "$9" "${10}" "${11}" || return 1
  vastd_lease_show
}

vastd_lease_drop() { # the guard is called off, and does not come back with the container
  vastd_lease_home
  : >"$lease_home/released" || return 1
  vastd_lease_lives || return 0
  kill "$lease_pid"
  drop_left=40
  while vastd_stat "$lease_pid" && [ "$drop_left" -gt 0 ]; do
    drop_left=$((drop_left - 1))
    sleep 0.05 2>/dev/null || { sleep 1 && drop_left=0; }
  done
  ! vastd_stat "$lease_pid"
}

vastd_lease_wind_down() { # TERM, grace, KILL, then the user's last command
  vastd_lease_home
  eval "set -- $(cat "$lease_home/settings")"
  down_jobs=$1/.vastd/jobs down_salvage=$3
  down_end=$(($(date +%s) + $2))
  vastd_lease_signal TERM
  while vastd_lease_busy && [ "$(date +%s)" -lt "$down_end" ]; do sleep 1; done
  vastd_lease_signal KILL
  [ -z "$down_salvage" ] && return 0
  (cd "$1/project" && unset CONTAINER_API_KEY && vastd_limit 600 sh -c "$down_salvage") \
    </dev/null >"$1/logs/salvage.log" 2>&1
}

vastd_lease_signal() { # SIGNAL
  for down_dir in "$down_jobs"/*/; do vastd_kill "$down_dir" "$1"; done
}

vastd_lease_busy() {
  for down_dir in "$down_jobs"/*/; do vastd_alive "$down_dir/process" && return 0; done
  return 1
}

case ${1:-} in
  wind_down) vastd_lease_wind_down ;;
esac
