package launcher

import (
	"regexp"
	"strings"
)

// The far side runs two scripts of POSIX sh, each as one line. The wrapper, which
// runs for every command, holds no single quote, backslash, exclamation mark or
// byte over 0x7f: then every login shell passes it on unchanged between single
// quotes.
var (
	wrapper    = oneLine(wrapperText)
	supervisor = oneLine(supervisorText)
)

// oneLine removes the comments and joins the lines.
func oneLine(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		b.WriteString(line)
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

// wrapperText runs one command: sh -c WRAPPER tb NONCE NONCE MODE [HEADER].
//
// The two halves of the nonce, written together, begin a record in the output:
//
//	NONCE H 0;         a line is awaited: see below
//	NONCE P PID;       the command runs; what follows is its output
//	NONCE E REASON;    it cannot be started
//	NONCE X CODE,TEXT,SIGNAL;   it has exited; TEXT is not empty if the shell
//	                   reported a signal
//
// MODE is p for pipes: the header is the first line of the standard input, and
// records go to both outputs. It is t for a terminal with input and o for one
// without: the header is the last argument. A w behind that means that the launcher's
// own program may set the terminal's modes until it has passed on some output: the
// wrapper asks for a line, and then sets them.
//
// The header is a text for printf %b that sets the variables of the command,
// the directory _d, the size _t of its terminal as stty takes it, and the words of
// the command. The launcher's program may hand the size on too late, and characters
// of many bytes are not known to each terminal.
//
// The command runs in the foreground, since a background process of a shell
// ignores SIGINT. A shell that is told of a signal writes the signal's name to
// its standard error: there a pipe of its own catches it, which tells a signal
// from exit code 128+n. The pipe is a here-document; its read end is descriptor
// 8, and /proc/self/fd/8 its write end. Where that is a file (bash) the message
// is lost, and the signal stays a code.
const wrapperText = `
if [ "$BASH_VERSION" ]; then set +o posix; fi;
_a=$1$2; _m=$3; _h=$4; _d=; _x=; _s=; _j=;
case $_m in (p) IFS= read -r _h || exit 0;; esac;
_n=${IFS#??}; eval "exec 8<<X${_n}x${_n}X$_n"; read -r _t <&8; _t=;
case $_m in (p) exec 6>&1 7>&2;; (*) exec 6>&1 7>&1;; esac;
eval "$(printf %b "$_h")";
_e() { echo "$_a E $1;" >&7; exit 0; };
if [ "$_d" ]; then
	cd -- "$_d" 2>/dev/null || {
		if [ -d "$_d" ]; then _e "EACCES dir"; elif [ -e "$_d" ]; then _e "ENOTDIR dir"; else _e "ENOENT dir"; fi;
	};
fi;
case $1 in
	(*/*) if [ -d "$1" ]; then _e EISDIR; elif [ -e "$1" ]; then [ -x "$1" ] || _e EACCES; else _e ENOENT; fi;;
	(*) command -v -- "$1" >/dev/null 2>&1 || command -v "$1" >/dev/null 2>&1 || _e ENOENT;;
esac;
if [ ${#_h} -gt 60000 ]; then (exec /bin/sh -c : "$@") 2>/dev/null || _e E2BIG; fi;
_u=;
case $_m in (*w) _m=${_m%w}; _u=echo; stty -echo 2>/dev/null; echo "$_a H 0;" >&6; IFS= read -r _p || exit 0;; esac;
case $_m in (t|o) stty $_t -onlcr iutf8 $_u 2>/dev/null || stty -onlcr $_u 2>/dev/null;; esac;
case $_m in (t) if [ -z "$BASH_VERSION$KSH_VERSION$ZSH_VERSION$YASH_VERSION" ]; then set -m; _j=1; fi;; esac;
if [ -p /proc/self/fd/8 ]; then exec 2>/proc/self/fd/8; _s=1; else exec 2>/dev/null; fi;
case $_m in (t) trap _x=INT INT;; (*) trap : INT;; esac;
trap : HUP QUIT TERM USR1 USR2;
(
	_p=0; [ -r /proc/self/stat ] && read -r _p _u </proc/self/stat;
	echo "$_a P $_p;" >&6;
	case $_m in (p) echo "$_a P $_p;" >&7;; esac;
	case $_m in (o) exec </dev/null; if command -v setsid >/dev/null 2>&1; then set -- setsid "$@"; fi;; esac;
	unset _a _d _h _j _m _n _p _s _t _u _x;
	exec "$@" 2>&7 6>&- 7>&- 8<&-
);
_r=$?;
# A key has stopped the job. Nobody would continue it: here it is as on a terminal
# without job control, where the key does nothing.
while [ $_j ] && [ $_r -gt 146 ] && [ $_r -lt 151 ] && jobs %% >/dev/null 2>&1; do fg %% >/dev/null 2>&1; _r=$?; done;
trap "" HUP INT TERM PIPE TTOU;
if [ $_s ]; then echo . >&2; read -r _t <&8; fi;
if [ -z "$_j" ]; then _x=; fi;
echo "$_a X $_r,$_t,$_x;" >&7;
case $_m in (p) echo "$_a X $_r,$_t,$_x;" >&6;; esac;
exit 0
`

// supervisorText watches over the commands of one connection: sh -c SUPERVISOR
// tb TAG SECONDS. It reads a line for each request, and answers with one:
//
//	P WORD             a heartbeat. P WORD
//	S ID STEPS         stop what has the tag ID: TERM, and KILL after STEPS of
//	                   50 ms. S ID PID:WORDS …: what is left, WORDS in hexadecimal
//	L ID               L ID PID:WORDS …: what has the tag ID
//	K ID SIGNAL        signal what has the tag ID. K ID
//	N PID SIGNAL       signal one process. N PID, or N PID - if it is gone
//	W ID PID ROWS COLS signal a change of its size to what has the tag ID, once
//	                   the terminal of PID has that size, or after half a minute.
//	                   W ID: after a second at most
//	G PID SIGNAL       signal the foreground group of its terminal, or its group
//
// When its input ends, and when no heartbeat came for SECONDS, everything that
// has the tag is killed. Tags hold dots, which are no patterns (-F). All processes of a command have the tag in their
// environment, so two scans that find nothing are the end of it: between fork
// and exec, and in its exit, a process shows none for a moment.
const supervisorText = `
trap "" HUP INT QUIT TERM PIPE USR1;
_g="TERMBRIDGE_PLACE=$1";
_f() { grep -Fls "$_g.$1" /proc/[0-9]*/environ 2>/dev/null; };
_k() { for _p in $(_f "$1"); do _p=${_p#/proc/}; kill -$2 "${_p%/environ}"; done 2>/dev/null; };
_z() {
	_n=0; _c=0;
	while [ $_n -lt 60 ] && [ $_c -lt 2 ]; do
		if [ -n "$(_f "$1")" ]; then _c=0; _k "$1" KILL; else _c=$((_c+1)); fi;
		[ $_c -gt 1 ] || sleep 0.02;
		_n=$((_n+1));
	done;
};
_l() {
	for _p in $(_f "$1"); do
		_c=$(tr "\000" " " 2>/dev/null <"${_p%environ}cmdline" | od -An -tx1 | tr -d " \n");
		_p=${_p#/proc/}; printf " %s:%s" "${_p%/environ}" "$_c";
	done;
};
_s() {
	_k "$1" TERM; _k "$1" CONT; _i=$2;
	while [ $_i -gt 0 ] && [ -n "$(_f "$1")" ]; do sleep 0.05; _i=$((_i-1)); done;
	_z "$1"; echo "S $1$(_l "$1")";
};
_q() {
	read -r _u 2>/dev/null </proc/$1/stat || { echo "G $1 -"; return; };
	set -- $1 $2 ${_u##*) };
	if [ $8 -gt 0 ]; then kill -$2 -$8; else kill -$2 -$5; fi 2>/dev/null;
	echo "G $1";
};
_w() {
	_i=0; _y=0.05;
	while [ $_i -lt 80 ] && [ -d /proc/$2 ]; do
		_n=$(stty size 2>/dev/null </proc/$2/fd/1);
		[ "$_n" != "$3 $4" ] || break;
		if [ $_i = 20 ]; then [ "$_n" ] || break; echo "W $1"; _y=0.5; fi;
		sleep $_y; _i=$((_i+1));
	done;
	_k "$1" WINCH; [ $_i -gt 20 ] || echo "W $1";
};
(
	trap "" HUP INT QUIT TERM PIPE; trap "_b=0" USR1; _b=0; exec </dev/null >/dev/null 2>&1;
	while [ $_b -lt $2 ]; do (trap - TERM; exec sleep 1); _b=$((_b+1)); kill -0 $$ || _b=99999; done;
	kill -KILL $$; _z ""
) & _t=$!;
if [ -r /proc/$$/environ ]; then echo "READY $$"; else echo "READY -"; fi;
while IFS=" " read -r _o _i _x; do
	case $_o in
		(S) _s $_i $_x & ;;
		(K) _k $_i $_x; echo "K $_i";;
		(L) echo "L $_i$(_l $_i)";;
		(N) if kill -$_x $_i 2>/dev/null; then echo "N $_i"; else echo "N $_i -"; fi;;
		(G) _q $_i $_x;;
		(W) _w $_i $_x & ;;
		(P) kill -USR1 $_t; echo "P $_i";;
		(Q) break;;
	esac;
done;
kill -KILL $_t; _z ""; echo BYE
`

// forbidden is what a login shell might change between single quotes.
var forbidden = regexp.MustCompile(`['\\!\r\n\x00\x80-\xff]`)

// maxQuoted is how long a word between single quotes may be: csh has a limit.
const maxQuoted = 1000
