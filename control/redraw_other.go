//go:build !unix

package control

func redraw(session) {}
