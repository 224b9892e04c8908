# Completion of cleave for bash: asks the program itself (src/cli/complete.c), which knows every
# command, option and value. Installed as share/bash-completion/completions/cleave; without that:
#   source tools/completion/cleave.bash

_cleave() {
    local line=${COMP_LINE:0:COMP_POINT} words=() answers=() word answer breaks
    # The words as the program would get them: bash's own are also broken at : and =.
    # shellcheck disable=SC2162 # a backslash before a blank is part of the word
    read -a words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    word=${words[-1]}
    mapfile -t answers < <("$1" help --complete "${words[@]:1}" 2>/dev/null)

    # What is before the last of those characters stays on the line: answers go without it.
    breaks=${word%"${word##*[:=]}"}
    [[ $COMP_WORDBREAKS == *:* ]] || breaks=${word%"${word##*=}"}
    COMPREPLY=()
    for answer in "${answers[@]}"; do
        case $answer in
        $'\tfiles\t'*) _cleave_paths -f "${answer#$'\tfiles\t'}" ;;
        $'\tfolders\t'*) _cleave_paths -d "${answer#$'\tfolders\t'}" ;;
        *)
            answer=${answer%%$'\t'*}
            [[ $answer == *[:=] ]] && compopt -o nospace 2>/dev/null
            COMPREPLY+=("${answer#"$breaks"}")
            ;;
        esac
    done
}

# _cleave_paths -f|-d KEPT: files or folders behind what of the word is no path.
_cleave_paths() {
    local path
    compopt -o filenames 2>/dev/null
    while IFS= read -r path; do
        path=$2$path
        COMPREPLY+=("${path#"$breaks"}")
    done < <(compgen "$1" -- "${word#"$2"}")
}

complete -F _cleave cleave
