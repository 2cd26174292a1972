# Completion of gpumem(1) in fish: the command itself knows its words.
complete -c gpumem -a '(set -l words (commandline -opc); $words[1] __complete $words[2..] (commandline -ct) 2>/dev/null)'
