package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/text"
)

// completeVerb is what the scripts call: with the words behind the program's name,
// the one that is being typed last. It prints the candidates, a line each.
const completeVerb = "__complete"

// scripts by shell. @WORD@ is the first word of the program's name, @CALL@ all of it,
// and @SKIP@ how many words that are.
var scripts = map[string]string{
	"bash": `@FUNC@() {
  local IFS=$'\n' skip=@SKIP@ cur=${COMP_WORDS[COMP_CWORD]}
  ((COMP_CWORD < skip)) && { ((COMP_CWORD == 1)) && COMPREPLY=($(compgen -W 'ctl' -- "$cur")); return; }
  COMPREPLY=($(@CALL@ __complete "${COMP_WORDS[@]:skip:COMP_CWORD-skip+1}" 2>/dev/null | cut -f1))
  local i
  for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=$(printf %q "${COMPREPLY[i]}"); done
}
complete -o default -F @FUNC@ @WORD@
`,
	"zsh": `@FUNC@() {
  local skip=@SKIP@
  if ((CURRENT <= skip)); then
    ((CURRENT == 2)) && compadd ctl
    return
  fi
  local -a lines found
  lines=("${(@f)$(@CALL@ __complete "${(@)words[skip+1,CURRENT]}" 2>/dev/null)}")
  local line
  for line in $lines; do found+=("${line%%$'\t'*}"); done
  compadd -- $found
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef @FUNC@ @WORD@
`,
	"fish": `function _@FUNC@
  set -l words (commandline -opc)[@FISH@..-1] (commandline -ct)
  @CALL@ __complete $words 2>/dev/null
end
complete -c @WORD@ -n 'test (count (commandline -opc)) -lt @SKIP@' -a ctl -f
complete -c @WORD@ -n 'test (count (commandline -opc)) -ge @SKIP@' -a '(_@FUNC@)' -f
`,
}

func completion(c *call) error {
	if err := c.want(1, 1); err != nil {
		return err
	}
	script, ok := scripts[c.operands[0]]
	if !ok {
		return misuse("%q is none of bash, zsh and fish", c.operands[0])
	}
	words := strings.Fields(c.Name)
	script = strings.NewReplacer(
		"@FUNC@", "_"+strings.ReplaceAll(words[0], "-", "_")+"_ctl", "@WORD@", words[0], "@CALL@", c.Name,
		"@FISH@", fmt.Sprint(len(words)+1), "@SKIP@", fmt.Sprint(len(words)),
	).Replace(script)
	_, err := fmt.Fprint(c.Stdout, script)
	return local(err)
}

// completeTime bounds the question to the agent: a shell is waiting.
const completeTime = 2 * time.Second

// complete prints what the last of words can be.
func (p Program) complete(ctx context.Context, words []string) int {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	offer := func(candidate, about string) {
		if strings.HasPrefix(candidate, last) && candidate != "" && candidate == text.Visible(candidate, "") {
			fmt.Fprintf(p.Stdout, "%s\t%s\n", candidate, text.Visible(about, ""))
		}
	}
	if len(before) == 0 {
		for _, v := range verbs {
			offer(v.name, v.text)
		}
		return ExitOK
	}
	c := &call{Program: p, Context: ctx}
	for _, v := range verbs {
		if v.name == before[0] {
			c.verb = v
		}
	}
	_, _ = c.parse(append(before[1:len(before):len(before)], "--")) // what is not complete says little
	switch before[len(before)-1] {
	case "--state":
		for _, s := range []control.State{control.Idle, control.Working, control.Blocked, control.Done} {
			offer(string(s), "")
		}
		return ExitOK
	case "--socket", "--cwd", "--name", "--tail", "--timeout", "--detach-key":
		return ExitOK // the shell knows files, nobody knows the rest
	case "--group":
		c.groups(offer)
		return ExitOK
	}
	if strings.HasPrefix(last, "-") {
		for line := range strings.Lines(c.verb.flagHelp + commonHelp) {
			if name, about, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "--") {
				offer(strings.TrimSuffix(name, ","), strings.TrimSpace(about))
			}
		}
		return ExitOK
	}
	switch first := len(c.operands) == 0; {
	case c.verb.name == "completion" && first:
		for _, shell := range []string{"bash", "fish", "zsh"} {
			offer(shell, "")
		}
	case c.verb.name == "group" && len(c.operands) == 1, strings.HasPrefix(c.verb.name, "group-") && first:
		c.groups(offer)
	case strings.HasPrefix(c.verb.args, "TERMINAL") && first, c.verb.name == "kill", c.verb.name == "wait" && first:
		for _, s := range c.sessions() {
			offer(s.Name, s.Command)
			if s.ID != s.Name {
				offer(s.ID, s.Name)
			}
		}
	}
	return ExitOK
}

// sessions returns those of the agent, or none if it does not answer.
func (c *call) sessions() []control.SessionInfo {
	r, _ := c.ask(control.Request{Verb: control.VerbList})
	return r.Sessions
}

func (c *call) groups(offer func(candidate, about string)) {
	seen := map[string]bool{"": true}
	for _, s := range c.sessions() {
		if !seen[s.Group] {
			seen[s.Group] = true
			offer(s.Group, "")
		}
	}
}
