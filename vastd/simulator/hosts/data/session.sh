#!/bin/sh
# How a login, a command or a subsystem begins inside an instance; what sshd and PAM do elsewhere.
# Usage: session login | session command TEXT | session subsystem PROGRAM
# INSTANCE_HOME is set only where there is no sandbox; inside one, root's home is /root.
umask 022
: "${INSTANCE_HOME:=/root}"
HOME=$INSTANCE_HOME USER=root LOGNAME=root SHELL=/bin/sh
[ -x /bin/bash ] && SHELL=/bin/bash
PATH=${0%/*}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME USER LOGNAME SHELL PATH
environment=${INSTANCE_ETC:-/etc}/environment
if [ -r "$environment" ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line#export }
        case $line in [A-Za-z_]*=*) ;; *) continue ;; esac
        key=${line%%=*} value=${line#*=}
        case $key in *[!A-Za-z0-9_]*) continue ;; esac
        case $value in
            \"*\") value=${value#\"} value=${value%\"} ;;
            \'*\') value=${value#\'} value=${value%\'} ;;
        esac
        export "$key=$value"
    done <"$environment"
fi
cd "$HOME" 2>/dev/null || cd /
marker=$HOME/.no_auto_tmux
case $1 in
    login)
        # Vast opens every login in tmux unless the marker exists (VAST_API 13).
        if [ ! -e "$marker" ] && [ -t 0 ] && command -v tmux >/dev/null 2>&1; then
            exec tmux new-session -A -s ssh_tmux
        fi
        [ -t 0 ] && exec "$SHELL" -l
        exec "$SHELL"
        ;;
    command)
        # The rarer trouble of the same origin: a command without a terminal never runs.
        if [ -e "${0%/*}/tmux-for-commands" ] && [ ! -e "$marker" ] && [ ! -t 0 ]; then
            echo "no sessions" >&2
            exit 0
        fi
        exec "$SHELL" -c "$2"
        ;;
    subsystem)
        shift
        exec "$@"
        ;;
esac
exit 127
