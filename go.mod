module github.com/termbridge/termbridge

go 1.26.0

require (
	github.com/coder/acp-go-sdk v0.13.0
	github.com/creack/pty v1.1.24
	github.com/google/go-cmp v0.7.0
	github.com/rogpeppe/go-internal v1.16.0
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
	golang.org/x/tools v0.38.0
	mvdan.cc/sh/v3 v3.14.1
)

require golang.org/x/term v0.45.0 // indirect
