# Which process is a node's: its id and the time it began, so that a process that got the id later is never taken for it.

# began PID: in ticks since the machine started; fails when there is no such process, or it has ended and nobody asked how.
began() {
  local line
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  line=${line##*) }
  set -- $line
  [ "$1" != Z ] && [ "$1" != X ] && echo "${20}"
}

# remember DIR PID
remember() {
  echo "$2 $(began "$2")" >"$1/pid"
}

# running DIR: says the id of the node's process; fails when it does not run.
running() {
  local pid at
  [ -s "$1/pid" ] && read -r pid at <"$1/pid" || return 1
  [ -n "$at" ] && [ "$(began "$pid")" = "$at" ] && echo "$pid"
}
