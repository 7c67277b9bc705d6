// Package e2e tests `coppice serve` as its users see it: as a separate process, through OpenAI's
// official client, and its live page in a browser. It checks only data that goes over the wire;
// package server tests the rest. It owns no behaviour.
//
// It is a separate module, so that programs which import Coppice do not download the client and the
// browser's driver.
//
//	go test .                             # all tests; those of the page if a browser is installed
//	go test . -run Page -pictures DIR     # the pages of a server and of a fleet, and pictures of them
//	go test . -run Clients -clients DIR   # other clients, as clients/install.py installs them in DIR
//	go test . -coppice ./coppice          # another build of the program
//
// openai_client.py runs the main paths of OpenAI's Python package against a running server;
// openai_client.txt is its latest output.
package e2e
