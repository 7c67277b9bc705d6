// Package e2e tests `coppice serve` as its users meet it: a process of its own, asked by
// OpenAI's official client, and its live page in a browser. It owns no behaviour and
// looks at nothing but what goes over the wire; package server tests the rest.
//
// It is a module of its own, so that nobody who imports Coppice downloads the client and
// what drives the browser.
//
//	go test .                             # all; the browser where there is one
//	go test . -run Page -pictures DIR     # the page, and pictures of it
//	go test . -run Clients -clients DIR   # other clients, as clients/install.py installs them in DIR
//	go test . -coppice ./coppice          # another build of the program
//
// openai_client.py does the main paths with OpenAI's Python package against a running
// server; openai_client.txt is what it said last.
package e2e
