#!/bin/sh
# Answers as the rented GPUs would. Facts come from gpu.env beside this file.
. "${0%/*}/gpu.env"

busy() {
    # Something works for the job when a process other than a shell runs below the workspace.
    for link in /proc/[0-9]*/cwd; do
        at=$(readlink "$link" 2>/dev/null) || continue
        case $at in "$GPU_WORKSPACE"/?*) ;; *) continue ;; esac
        read -r name <"${link%/cwd}/comm" 2>/dev/null || continue
        case $name in sh | bash | dash | tmux* | rsync | sleep | nvidia-smi | session | cat) continue ;; esac
        return 0
    done
    return 1
}

uuid() { printf 'GPU-%s-%04x-4000-8000-%012x' "$GPU_SERIAL" "$1" "$1"; }

if [ -n "$GPU_ERROR" ]; then
    echo "$GPU_ERROR"
    exit 9
fi
if busy; then util=87 used=$((GPU_MEMORY_MIB * 7 / 10)) temp=67 watt=$((GPU_POWER_W * 8 / 10)) mem_util=41
else util=0 used=2 temp=34 watt=$((GPU_POWER_W / 12)) mem_util=0; fi

select_ids() {
    i=0
    while [ "$i" -lt "$GPU_COUNT" ]; do
        case ",$only," in ,, | *",$i,"*) echo "$i" ;; esac
        i=$((i + 1))
    done
}

field() { # field NAME INDEX UNITS: one value, with its unit when UNITS is 1
    unit=
    case $1 in
        name | gpu_name) value=$GPU_NAME ;;
        index) value=$2 ;;
        count) value=$GPU_COUNT ;;
        uuid | gpu_uuid) value=$(uuid "$2") ;;
        driver_version) value=$GPU_DRIVER ;;
        compute_cap) value=$GPU_COMPUTE_CAP ;;
        memory.total) value=$GPU_MEMORY_MIB unit=MiB ;;
        memory.used) value=$used unit=MiB ;;
        memory.free) value=$((GPU_MEMORY_MIB - used)) unit=MiB ;;
        utilization.gpu) value=$util unit=% ;;
        utilization.memory) value=$mem_util unit=% ;;
        temperature.gpu) value=$temp ;;
        power.draw) value=$watt.00 unit=W ;;
        power.limit | power.max_limit) value=$GPU_POWER_W.00 unit=W ;;
        pstate) value=P0 ;;
        timestamp) value=$(date '+%Y/%m/%d %H:%M:%S.000') ;;
        pci.bus_id | gpu_bus_id) value=$(printf '00000000:%02X:00.0' "$(($2 + 1))") ;;
        *) return 1 ;;
    esac
    [ "$3" = 1 ] && [ -n "$unit" ] && value="$value $unit"
    return 0
}

query() { # query FIELDS FORMAT
    units=1 header=1
    case ",$2," in *,csv,*) ;; *) echo "\"--format=\" must contain \"csv\"."; exit 2 ;; esac
    case ",$2," in *,nounits,*) units=0 ;; esac
    case ",$2," in *,noheader,*) header=0 ;; esac
    names=$(printf %s "$1" | tr ',' ' ')
    for name in $names; do
        field "$name" 0 0 && continue
        echo "Field \"$name\" is not a valid field to query."
        exit 2
    done
    if [ "$header" = 1 ]; then
        line=
        for name in $names; do
            field "$name" 0 0
            [ "$units" = 1 ] && [ -n "$unit" ] && name="$name [$unit]"
            line="$line${line:+, }$name"
        done
        echo "$line"
    fi
    for id in $(select_ids); do
        line=
        for name in $names; do
            field "$name" "$id" "$units"
            line="$line${line:+, }$value"
        done
        echo "$line"
    done
}

list() { for id in $(select_ids); do echo "GPU $id: $GPU_NAME (UUID: $(uuid "$id"))"; done; }

rule() { printf '+%s+%s+%s+\n' "$1" "$2" "$3"; }

table() {
    wide='-----------------------------------------------------------------------------------------'
    a='-----------------------------------------' b='------------------------' c='----------------------'
    date '+%a %b %e %H:%M:%S %Y'
    echo "+$wide+"
    printf '| NVIDIA-SMI %-22s Driver Version: %-15sCUDA Version: %-9s|\n' \
        "$GPU_DRIVER" "$GPU_DRIVER" "$GPU_CUDA"
    rule "$a" "$b" "$c"
    echo '| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |'
    echo '| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |'
    echo '|                                         |                        |               MIG M. |'
    rule "$(printf %s "$a" | tr - =)" "$(printf %s "$b" | tr - =)" "$(printf %s "$c" | tr - =)"
    for id in $(select_ids); do
        printf '| %3s  %-30.30s On  |   00000000:%02X:00.0 Off | %20s |\n' \
            "$id" "$GPU_NAME" "$((id + 1))" Off
        printf '| %3s%% %4sC    P0 %14sW / %4sW | %7sMiB / %6sMiB | %6s%%      Default |\n' \
            30 "$temp" "$watt" "$GPU_POWER_W" "$used" "$GPU_MEMORY_MIB" "$util"
        printf '|                                         |                        | %20s |\n' N/A
        rule "$a" "$b" "$c"
    done
}

only= fields= format= action=table
while [ $# -gt 0 ]; do
    case $1 in
        --query-gpu=*) fields=${1#*=} action=query ;;
        --query-compute-apps=* | --query-accounted-apps=*) action=apps ;;
        --format=*) format=${1#*=} ;;
        -i | --id) only=$2; shift ;;
        -i=* | --id=*) only=${1#*=} ;;
        -L | --list-gpus) action=list ;;
        -h | --help) echo "nvidia-smi [-L] [-i ID] [--query-gpu=FIELDS --format=csv[,noheader][,nounits]]"; exit 0 ;;
        *) echo "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."; exit 1 ;;
    esac
    shift
done
case $action in
    query) query "$fields" "$format" ;;
    list) list ;;
    apps) ;;
    table) table ;;
esac
