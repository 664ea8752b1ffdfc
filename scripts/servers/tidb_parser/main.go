// Reads statements and says how many TiDB's own parser found in them, or what it does not accept.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pingcap/tidb/pkg/parser"
	_ "github.com/pingcap/tidb/pkg/parser/test_driver"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		found, warnings, refused := parser.New().Parse(string(text), "utf8mb4", "")
		for _, warning := range warnings {
			fmt.Fprintln(os.Stderr, warning)
		}
		fmt.Println(len(found))
		err = refused
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
