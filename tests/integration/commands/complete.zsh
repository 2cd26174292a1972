# Prints LINE as an interactive zsh completes it.
# Usage: zsh -f complete.zsh COMPLETIONS_FOLDER PROGRAM_FOLDER LINE
zmodload zsh/zpty
path=($2 $path)
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D
show() { zle complete-word; print -r -- \"<\$BUFFER>\"; exit }; zle -N show; bindkey '^I' show; print ready'!'"
zpty -r shell said '*ready!*'
zpty -n -w shell "$3"$'\t'
zpty -r shell said '*<*>*'
said=${said##*<}
print -r -- ${said%%>*}
