package execenv_test

var programs = map[string]func(args []string){}
