# What the shell of a sandbox runs: lines from its input, whose answers go to its output.
# Its argument is the folder of our files. Names with `__` are ours.
exec 208<&0 209>&1 </dev/null >/dev/null 2>&1
set -m
shopt -s expand_aliases
__files=$1 __self=$$ __old= __line= __code= __won= __spare= __kept=
__spare_end=/proc/self/fd/207
[[ -d /proc/self/fd ]] || __spare_end=/dev/null
shift
: >|"$__files/$__self.shell"

__save() { # NUMBER of the command that ends the shell
  builtin jobs -lr >|"$__files/$1.jobs"
  {
    for __line in $(builtin compgen -v); do
      case $__line in
        BASH* | FUNCNAME | GROUPS | DIRSTACK | PIPESTATUS | __* | _) ;;
        *) builtin declare -p "$__line" ;;
      esac
    done
    builtin declare -f
    builtin alias -p
    builtin shopt -p
    builtin umask -p
    builtin printf 'cd -- %q\n' "$PWD"
    builtin set +o
  } >|"$__files/$1.saved" 2>/dev/null
}
__follow() { # PID, TEXT: make a process that is not our child a job
  builtin kill -0 "$1" || return
  local pid=$1 text=$2
  [[ $text == still_running* ]] || text="still_running '${text//\'/}'"
  mkfifo "$__files/$pid.fifo"
  \exec 206<>"$__files/$pid.fifo"
  builtin eval "$text &"
  \exec 206<&-
  mv "$__files/$pid.fifo" "$__files/$pid.$!.job"
  builtin kill -USR1 $PPID # the program that holds the shells serves it from now on
}
still_running() { # without a program of its own: while one runs, bash may lose a signal
  local code
  builtin read -r -u 206 code
  builtin exit "${code:-1}"
}
__adopt_jobs() { # NUMBER of the command
  local name pid state text
  while builtin read -r name pid state text; do
    text=${text%  (wd: *}
    [[ $name == \[* ]] && __follow "$pid" "${text% &}" # else the next process of a pipeline
  done <"$__files/$1.jobs"
}

while IFS= builtin read -r -u 208 __line; do builtin eval "$__line"; done
