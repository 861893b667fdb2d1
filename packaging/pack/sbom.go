package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what a target's program is made of, by its own record of its modules: `go version -m` shows the same.
func (r *release) writeSBOM(t target) error {
	bom, err := r.bom(t)
	if err != nil {
		return err
	}
	return r.create(r.name(t, ".cdx.json"), func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// bom is the bill of materials of a target's program: the program with its hash, and its modules with those of go.sum.
func (r *release) bom(t target) (*cyclonedx.BOM, error) {
	built, err := buildinfo.ReadFile(t.binary)
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", t.binary, err)
	}
	sum, err := sha256OfFile(t.binary)
	if err != nil {
		return nil, err
	}
	program := cyclonedx.Component{
		BOMRef: "program", Type: cyclonedx.ComponentTypeApplication, Name: built.Main.Path, Version: r.version,
		PackageURL: packageURL(built.Main.Path, "v"+r.version) + "?type=module&goos=" + t.os + "&goarch=" + t.arch,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}},
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	goVersion := strings.TrimPrefix(built.GoVersion, "go")
	components := []cyclonedx.Component{{
		BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: "go" + goVersion, PackageURL: packageURL("std", goVersion),
	}}
	refs := []string{"go"}
	for _, module := range built.Deps {
		component, err := moduleComponent(module)
		if err != nil {
			return nil, err
		}
		components, refs = append(components, component), append(refs, component.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bom, nil
}

// moduleComponent describes a module, or the one that replaces it.
func moduleComponent(module *debug.Module) (component cyclonedx.Component, err error) {
	if module.Replace != nil && module.Replace.Version != "" { // a folder has no name that means something elsewhere
		module = module.Replace
	}
	component = cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: packageURL(module.Path, module.Version),
	}
	component.BOMRef = component.PackageURL
	if sum, found := strings.CutPrefix(module.Sum, "h1:"); found { // the SHA-256 of the module's file list
		hash, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return component, fmt.Errorf("reading the sum of %s: %w", module.Path, err)
		}
		component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return component, nil
}

// packageURL names a Go module as https://github.com/package-url/purl-spec does.
func packageURL(module, version string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
