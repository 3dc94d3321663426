# vastd's guard: ends this instance when nobody renews its lease. Argument: LEASE_S.
# Goes into onstart with comments and indentation taken out (core/onstart.py), where every
# character counts: short names, and /dev/null is $o. Files in ~/.vastd, each replaced as a whole:
# pid, expiry and hard (epoch seconds on this clock), uncollected/JOB, on_expiry, guard.sh (the
# rest, by SSH), ending (the lease ran out), over (Vast took the stop), released (called off).
o=/dev/null g=${HOME:-/root}/.vastd L=$1
cd "$g" && umask 077 && [ ! -e released ] || exit
p=$(cat pid 2>$o)
# One is enough; after a restart of the container the number may be somebody else's.
[ "$p" != $$ ] && grep -qs guard_core "/proc/${p:-x}/cmdline" && exit
echo $$ >pid
v() { eval "x=\${$1:-}"; [ "$x" ] || x=$(tr '\0' '\n' </proc/1/environ 2>$o | sed -n "s/^$1=//p"); }
v VAST_URL
u=${x:-https://console.vast.ai}
v CONTAINER_ID
u=$u/api/v0/instances/$x/
v CONTAINER_API_KEY
k="Authorization: Bearer $x"
j='Content-Type: application/json'
# METHOD BODY: the key goes in on standard input, or in a file only we can read, so that no list of
# processes shows it.
call() {
  if command -v curl; then
    echo "header=\"$k\"" | curl -sfm60 -K- -X$1 -H"$j" -d$2 "$u"
  elif wget -V; then
    # wget reads it twice, so that it must be a file.
    echo "header=$k" >w
    wget -qO- -T60 -t1 --config=w --method=$1 --header="$j" --body-data=$2 "$u"
  else
    echo "$k" | $(command -v python3 || echo python) -c 'import sys
from urllib.request import *
_,u,m,d,j=sys.argv
urlopen(Request(u,d.encode(),dict(x.split(": ")for x in(j,input())),method=m),timeout=60)' "$u" $1 $2 "$j"
  fi >$o 2>&1
  r=$?
  rm -f w
  return $r
}
get() { n=$(cat $1 2>$o) && [ "$n" -ge 0 ] 2>$o || n=$2; }
t=$(date +%s)
# A container that was stopped and started has a new lease to be reached in; one that restarts while
# its end is not through has not.
if [ -e over ] || [ ! -e ending ]; then
  rm -f over ending hard
  get expiry 0
  [ $n -gt $((t + L)) ] || echo $((t + L)) >expiry
fi
while cd "$g" 2>$o; do
  get expiry 0
  e=$n
  get hard $e
  [ $n -lt $e ] && e=$n
  if [ $(date +%s) -lt $e ]; then
    rm -f ending over
    sleep 5
  elif [ ! -e ending ]; then
    >ending
    # It may take minutes, and a renewal may come meanwhile.
    [ -f guard.sh ] && sh guard.sh wind_down
  else
    if [ "$(ls uncollected 2>$o)" ] && ! grep -qs destroy on_expiry; then
      call PUT '{"state":"stopped"}' && >over
    else
      call DELETE {}
    fi
    sleep 20
  fi
done
