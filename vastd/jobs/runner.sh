# vastd's hand on the machine: starts jobs detached, records how they end, answers questions.
#
# Rules
# 1. POSIX sh with the tools every image has (dash, busybox): no bash, no python.
# 2. What is known of a job lies in files, each written whole and renamed; the multiplexer is
#    never asked. The exit code is written last and ends the story.
# 3. Whoever makes the directory "claim" runs the job; everybody else only looks. So a start
#    may be repeated, even at the same time.
# 4. A pid counts only together with its start time: pids are used again.
# 5. Values come as arguments of functions, read from standard input: never in anybody's argv.
#
# Files under WORKSPACE/.vastd/jobs/JOB: env (0600), command, gpus, heartbeat_path, claim/,
# runner and process ("PID TICKS PGID"), started_at, ended_at, exit_code.

vastd_put() { # PATH TEXT
  printf '%s\n' "$2" >"$1.tmp.$$" && mv -f "$1.tmp.$$" "$1"
}

vastd_put_last() { # PATH TEXT RESERVE: also on a full disk, which must not cost the exit code
  vastd_put "$1" "$2" 2>/dev/null && return 0
  rm -f "$1.tmp.$$"
  # Its blocks are ours already; text is written over them and the name is moved.
  printf '%s\n' "$2" 1<>"$3" && mv -f "$3" "$1"
}

vastd_get() { # PATH: prints the first line, or nothing
  [ -f "$1" ] && head -n 1 "$1"
}

vastd_stat() { # PID: sets stat_pgid and stat_ticks; fails when it is gone or only a zombie
  stat_pgid=0 stat_ticks=0
  stat_line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The name in parentheses may hold blanks and parentheses; what follows it is plain.
  set -- ${stat_line##*) }
  stat_pgid=$3 stat_ticks=${20}
  [ "$1" != Z ] && [ "$1" != X ]
}

vastd_alive() { # FILE: sets alive_pid and alive_pgid
  alive_pid=0 alive_ticks=0 alive_pgid=0
  [ -f "$1" ] || return 1
  read -r alive_pid alive_ticks alive_pgid <"$1"
  vastd_stat "$alive_pid" && [ "$stat_ticks" = "$alive_ticks" ]
}

vastd_limit() { # SECONDS COMMAND...: a hanging driver must not hang us
  if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift && "$@"; fi
}

vastd_quote() { # TEXT: as one word of shell
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# SSH sessions lack what the image sets with ENV (VAST_API 13): the first process has it.
vastd_image_env() { # [path]: everything, or only what finds programs
  image_env=$({ tr '\n' '\001' </proc/1/environ | tr '\000' '\n'; } 2>/dev/null)
  while IFS= read -r image_line; do
    image_name=${image_line%%=*} image_value=${image_line#*=}
    case $image_name in
      PATH) vastd_image_path "$image_value" ;;
      '' | [0-9]* | *[!A-Za-z0-9_]*) ;;
      PWD | OLDPWD | SHLVL | _ | HOME | HOSTNAME | TERM | USER | LOGNAME | SHELL | LD_PRELOAD) ;;
      *)
        [ "${1:-}" != path ] || continue
        if eval "[ -z \"\${$image_name+set}\" ]"; then
          image_value=$(printf '%s' "$image_value" | tr '\001' '\n')
          export "$image_name=$image_value"
        fi
        ;;
    esac
  done <<END
$image_env
END
}

vastd_image_path() { # PATH: puts directories only the image knows in front of ours
  image_extra=''
  image_ifs=$IFS
  IFS=:
  for image_dir in $1; do
    case ":$PATH:" in *":$image_dir:"*) ;; *) image_extra="$image_extra$image_dir:" ;; esac
  done
  IFS=$image_ifs
  PATH=$image_extra$PATH
  export PATH
}

vastd_disk() { # DIRECTORY: prints disk_free_kb
  df -Pk "$1" 2>/dev/null | awk 'END { if (NR > 1) print "disk_free_kb=" $4 }'
}

vastd_probe() { # WORKSPACE
  vastd_image_env path
  echo "clock=$(date +%s)"
  for probe_tool in rsync tmux; do
    command -v "$probe_tool" >/dev/null 2>&1 && echo "has_$probe_tool=1"
  done
  probe_dir=$1
  [ -d "$probe_dir" ] || probe_dir=/
  vastd_disk "$probe_dir"
  probe_gpus=$(vastd_limit 30 nvidia-smi \
    --query-gpu=name,memory.total,memory.used,utilization.gpu,driver_version \
    --format=csv,noheader,nounits 2>&1)
  probe_code=$?
  echo "smi_exit=$probe_code"
  if [ "$probe_code" != 0 ]; then
    printf '%s\n' "$probe_gpus" | head -n 5 | sed 's/^/smi_error=/'
    return 0
  fi
  printf '%s\n' "$probe_gpus" | sed 's/^/gpu=/'
  vastd_limit 30 nvidia-smi 2>/dev/null |
    sed -n 's/.*CUDA Version: *\([0-9][0-9.]*\).*/cuda_version=\1/p' | head -n 1
  vastd_limit 30 nvcc --version 2>/dev/null |
    sed -n 's/.*release \([0-9][0-9.]*\).*/toolkit_version=\1/p' | head -n 1
  return 0
}

vastd_prepare() { # WORKSPACE
  umask 077
  mkdir -p "$1/.vastd/jobs" "$1/.vastd/sync" || return 1
  umask 022
  mkdir -p "$1/project" "$1/logs" || return 1
  # Vast starts tmux in every login unless this file exists (VAST_API 13).
  : >>"$HOME/.no_auto_tmux"
}

vastd_start() { # WORKSPACE JOB RUNNER HEARTBEAT GPUS ENV COMMAND; - stands for none
  start_dir=$1/.vastd/jobs/$2
  vastd_prepare "$1" && (umask 077 && mkdir -p "$start_dir") || return 1
  if [ ! -d "$start_dir/claim" ]; then
    (
      umask 077
      vastd_put "$start_dir/heartbeat_path" "$4" && vastd_put "$start_dir/gpus" "$5" &&
        vastd_put "$start_dir/env" "$6" && vastd_put "$start_dir/command" "$7"
    ) || return 1
    # Should the lease run out (guard.sh), this machine is stopped, not destroyed: its results are
    # not home. A full disk must not keep the job from starting; the next renewal makes up for it.
    (umask 077 && mkdir -p "$HOME/.vastd/uncollected" && : >"$HOME/.vastd/uncollected/$2") 2>/dev/null
    vastd_launch "$1" "$2" "$3" || return 1
  fi
  vastd_wait_for "$start_dir" 200 && return 0
  echo "the runner did not come up within 10 s" >&2
  return 1
}

vastd_wait_for() { # JOB_DIR TRIES: until the process is on record, 50 ms apart
  wait_left=$2
  while [ "$wait_left" -gt 0 ]; do
    [ -s "$1/process" ] && return 0
    wait_left=$((wait_left - 1))
    sleep 0.05 2>/dev/null || { sleep 1 && wait_left=$((wait_left - 19)); }
  done
  return 1
}

vastd_launch() { # WORKSPACE JOB RUNNER
  if command -v tmux >/dev/null 2>&1; then
    launch_words="exec sh $(vastd_quote "$3") supervise $(vastd_quote "$1") $2 show"
    tmux new-session -d -s "vastd-$2" "$launch_words" </dev/null >/dev/null 2>&1 &&
      vastd_wait_for "$1/.vastd/jobs/$2" 60 && return 0
  fi
  # Also when tmux is there but broken: the claim sees to it that only one of them runs.
  if command -v setsid >/dev/null 2>&1; then
    setsid sh "$3" supervise "$1" "$2" </dev/null >/dev/null 2>&1 &
  else
    nohup sh "$3" supervise "$1" "$2" </dev/null >/dev/null 2>&1 &
  fi
}

vastd_supervise() { # WORKSPACE JOB RUNNER [show]
  # The terminal or the SSH session above may go at any moment; the job must not notice.
  trap '' HUP
  super_dir=$1/.vastd/jobs/$2 super_log=$1/logs/$2.log super_job=0 super_tail='' super_again=''
  mkdir "$super_dir/claim" 2>/dev/null || return 0
  vastd_stat $$
  vastd_put "$super_dir/runner" "$$ $stat_ticks $stat_pgid"
  vastd_put "$super_dir/started_at" "$(date +%s)"
  vastd_put "$super_dir/reserve_ended" '                ' # wider than any time or code
  vastd_put "$super_dir/reserve_code" '                '
  : >>"$super_log"
  if [ "${4:-}" = show ]; then
    # So that somebody who attaches sees the job; the log file stays the truth.
    tail -n +1 -f "$super_log" &
    super_tail=$!
  fi
  trap 'super_again=1; vastd_kill "$super_dir" TERM' TERM
  if command -v setsid >/dev/null 2>&1; then
    setsid sh "$3" exec "$1" "$2" </dev/null >>"$super_log" 2>&1 &
  else
    sh "$3" exec "$1" "$2" </dev/null >>"$super_log" 2>&1 &
  fi
  super_job=$!
  vastd_record "$super_dir" "$super_job"
  while :; do
    super_code=0
    wait "$super_job" || super_code=$?
    # A trapped signal ends "wait" early: that was not the job's end.
    [ -n "$super_again" ] || break
    super_again=''
  done
  vastd_put_last "$super_dir/ended_at" "$(date +%s)" "$super_dir/reserve_ended"
  vastd_put_last "$super_dir/exit_code" "$super_code" "$super_dir/reserve_code"
  rm -f "$super_dir/reserve_ended" "$super_dir/reserve_code"
  [ -z "$super_tail" ] || kill "$super_tail" 2>/dev/null
}

vastd_record() { # JOB_DIR PID: once the job leads its own group, or is already over
  record_left=100
  while vastd_stat "$2" && [ "$stat_pgid" != "$2" ] && [ "$record_left" -gt 0 ]; do
    command -v setsid >/dev/null 2>&1 || break
    record_left=$((record_left - 1))
    sleep 0.01 2>/dev/null || break
  done
  vastd_put "$1/process" "$2 $stat_ticks $stat_pgid"
}

vastd_exec() { # WORKSPACE JOB: becomes the job
  exec_dir=$1/.vastd/jobs/$2 exec_project=$1/project exec_job=$2
  vastd_image_env
  PYTHONUNBUFFERED=1
  export PYTHONUNBUFFERED
  . "$exec_dir/env"
  exec_gpus=$(vastd_get "$exec_dir/gpus")
  if [ "$exec_gpus" != - ]; then
    CUDA_VISIBLE_DEVICES=$exec_gpus
    export CUDA_VISIBLE_DEVICES
  fi
  VASTD_JOB_ID=$exec_job
  export VASTD_JOB_ID
  cd "$exec_project" || exit 126
  . "$exec_dir/command"
}

vastd_kill() { # JOB_DIR SIGNAL: the whole group; nothing if the job is gone
  vastd_alive "$1/process" || return 0
  if [ "$alive_pgid" = "$alive_pid" ]; then
    kill -s "$2" -- "-$alive_pid" 2>/dev/null
  else
    kill -s "$2" "$alive_pid" 2>/dev/null
  fi
  return 0
}

vastd_signal() { # WORKSPACE JOB SIGNAL
  vastd_kill "$1/.vastd/jobs/$2" "$3"
}

vastd_state() { # JOB_DIR: prints the state
  state_lives=''
  # Looked at before the exit code: a job that ends in between is then seen as ended.
  if vastd_alive "$1/runner" || vastd_alive "$1/process"; then state_lives=1; fi
  if [ ! -d "$1/claim" ]; then
    echo absent
  elif [ -s "$1/exit_code" ]; then
    echo exited
  elif [ -n "$state_lives" ]; then
    echo running
  elif [ ! -s "$1/runner" ] && [ -n "$(find "$1/claim" -prune -mmin -1)" ]; then
    echo running # claimed this minute, and the runner is about to write its pid
  else
    echo died
  fi
}

vastd_snapshot() { # WORKSPACE JOB
  vastd_image_env path
  snap_dir=$1/.vastd/jobs/$2 snap_log=$1/logs/$2.log
  snap_state=$(vastd_state "$snap_dir")
  echo "state=$snap_state"
  echo "clock=$(date +%s)"
  vastd_disk "$1"
  [ "$snap_state" != absent ] || return 0
  vastd_alive "$snap_dir/process"
  echo "pid=$alive_pid"
  for snap_name in exit_code started_at ended_at; do
    [ -s "$snap_dir/$snap_name" ] && echo "$snap_name=$(vastd_get "$snap_dir/$snap_name")"
  done
  # After the state: what an ended job wrote is all there.
  [ -f "$snap_log" ] && echo "log_bytes=$(stat -c %s "$snap_log")"
  snap_beat=$(vastd_get "$snap_dir/heartbeat_path")
  case $snap_beat in
    - | '') ;;
    *) vastd_beat "$1/project" "$snap_beat" ;;
  esac
  vastd_limit 10 nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits \
    2>/dev/null | sed 's/^/gpu_util=/'
  return 0
}

vastd_beat() { # PROJECT PATH: prints heartbeat_at and the file's first 4 KiB as hex
  cd "$1" 2>/dev/null || return 0
  [ -f "$2" ] || return 0
  echo "heartbeat_at=$(stat -L -c %Y "$2")"
  echo "heartbeat_hex=$(head -c 4096 "$2" | od -An -v -tx1 | tr -d ' \n')"
}

vastd_log() { # WORKSPACE JOB OFFSET LIMIT: prints bytes as they are
  [ -f "$1/logs/$2.log" ] || return 0
  # dd seeks by blocks; tail drops the odd bytes in front. Both read no more than needed.
  dd if="$1/logs/$2.log" bs=4096 skip=$(($3 / 4096)) count=$(($4 / 4096 + 2)) 2>/dev/null |
    tail -c "+$(($3 % 4096 + 1))" | head -c "$4"
}

vastd_framed() { # NONCE FUNCTION...: our words between two lines no login banner can print
  framed_nonce=$1
  shift
  printf '\n@@vastd-begin %s\n' "$framed_nonce"
  "$@"
  printf '\n@@vastd-end %s %s\n' "$framed_nonce" "$?"
}

case ${1:-} in
  supervise) vastd_supervise "$2" "$3" "$0" "${4:-}" ;;
  exec) vastd_exec "$2" "$3" ;;
esac
