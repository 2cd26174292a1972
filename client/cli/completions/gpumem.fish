# Completion of gpumem(1) in fish: the command itself knows its words. Files, where it knows none.
function __gpumem_complete
    set -l words (commandline -opc)
    $words[1] __complete $words[2..] (commandline -ct) 2>/dev/null
end
complete -c gpumem -n 'count (__gpumem_complete) >/dev/null' -f -a '(__gpumem_complete)'
