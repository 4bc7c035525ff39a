package bridge_test

import (
	"context"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/terminal"
)

// Commands on another host, beside those of this one and of the client.
func ExampleOptions_executors() {
	var (
		conn acpterm.Conn
		init acp.InitializeRequest
	)
	serve := func(conn acpterm.Conn, call *bridge.Call) (*bridge.Result, error) {
		ctx := context.Background()
		build := launcher.New(launcher.SSH("dev@build", nil), &launcher.Options{Dir: "/src"})
		defer build.Close() // after the Bridge
		b := bridge.New(conn, init, &bridge.Options{Executors: map[string]execenv.Executor{"build": build}})
		defer b.Close()
		return call.Exec(ctx, terminal.Command{Line: "make test", Environment: "build"})
	}
	_, _ = conn, serve
}
