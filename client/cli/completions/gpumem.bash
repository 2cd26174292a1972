# Completion of gpumem(1) in bash: the command itself knows its words.
_gpumem() {
  local IFS=$'\n'
  local words
  words=$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _gpumem gpumem
