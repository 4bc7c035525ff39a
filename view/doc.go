// Package view shows the output of a [terminal.Terminal] to whoever reads it a
// piece at a time, above all to a model: as text without escape sequences
// ([Plain]), in numbered lines ([Pager]), and not before something has happened
// ([WaitFor]). It works on every Manager.
package view
