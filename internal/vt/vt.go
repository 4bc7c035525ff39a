// Package vt is what a terminal does with what a program writes to it. It reads
// the output and never answers.
//
//   - A [State] is where a stream stands, in a control sequence or outside, so
//     that output can be cut where it may be cut.
//   - A [Screen] is what a terminal shows: rows of cells, a cursor, and modes.
//   - A [Text] is the same stream as text: the screen with all that has left it.
//
// It does what xterm does, as far as programs need that; its tests compare it
// with xterm.js. All time and memory is in proportion to what was read.
package vt
