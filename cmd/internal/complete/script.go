package complete

import (
	"fmt"
	"strings"
)

// Shells returns the names of the shells that Script knows.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Script returns the script that makes a shell complete the command lines of a program. The script runs
//
//	PROGRAM completion SHELL -- WORD…
//
// which prints a candidate a line, with its help after a tab, and a line with filesMark if names of files may stand
// there too.
func Script(shell, program string) (string, error) {
	text, ok := map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
	if !ok {
		return "", fmt.Errorf("there is no completion for %.40q; want %s", shell, strings.Join(Shells(), ", "))
	}
	return strings.NewReplacer("PROGRAM", program, "MARK", filesMark).Replace(text), nil
}

// Print returns the answer that the scripts read.
func Print(found []Candidate, files bool) string {
	var b strings.Builder
	for _, c := range found {
		b.WriteString(c.Word)
		if c.Help != "" {
			b.WriteString("\t" + c.Help)
		}
		b.WriteByte('\n')
	}
	if files {
		b.WriteString(filesMark + "\n")
	}
	return b.String()
}

// filesMark is no word of a command line.
const filesMark = ":files"

// Bash splits words at "=" and ":", which stand in COMP_WORDBREAKS, and replaces only the last part: hence the words
// are joined again, and candidates lose what stands before that part.
const bash = `# Completion of PROGRAM for bash.
_PROGRAM() {
	local line=${COMP_LINE:0:COMP_POINT} word words=() IFS=$' \t\n'
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	word=${words[${#words[@]}-1]}
	local cut=${word%"${word##*[=:]}"} found help
	COMPREPLY=()
	while IFS=$'\t' read -r found help; do
		if [[ $found == MARK ]]; then
			compopt -o filenames 2>/dev/null
			while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen -f -- "${word#"$cut"}")
		else
			COMPREPLY+=("${found#"$cut"}")
		fi
	done < <("${COMP_WORDS[0]}" completion bash -- "${words[@]:1}" 2>/dev/null)
	[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:] ]] && compopt -o nospace 2>/dev/null
}
complete -F _PROGRAM PROGRAM
`

const zsh = `#compdef PROGRAM
# Completion of PROGRAM for zsh.
_PROGRAM() {
	local line files=
	local -a found
	for line in "${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
		'') ;;
		MARK) files=1 ;;
		*) found+=("${${${line%%$'\t'*}//:/\\:}}${${line#*$'\t'}:+:${line#*$'\t'}}") ;;
		esac
	done
	(( ${#found} )) && _describe PROGRAM found
	[[ -z $files ]] || _files
}
if [[ ${funcstack[1]} == _PROGRAM ]]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
`

const fish = `# Completion of PROGRAM for fish.
function __PROGRAM_complete
	set -l words (commandline -opc) (commandline -ct)
	for line in ($words[1] completion fish -- $words[2..-1] 2>/dev/null)
		if test "$line" = MARK
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end
complete -c PROGRAM -f -a '(__PROGRAM_complete)'
`
