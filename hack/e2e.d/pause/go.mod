module metes.invalid/pause

go 1.24
