package command

import (
	"fmt"
	"os"
	"strings"
)

// defaultVendor returns the first vendor with its variable set, or echo.
func defaultVendor() string {
	for _, name := range vendorNames() {
		probe := setup{initOptions: initOptions{vendor: name}}
		if variable, err := probe.readVendor(); err == nil && variable != "" && os.Getenv(variable) != "" {
			return name
		}
	}
	return "echo"
}

// readVendor reads the vendor's provider and model, and changes their address and name as wanted. It returns the variable of the
// vendor's key, or an empty string for a vendor without a key.
func (s *setup) readVendor() (variable string, err error) {
	text, err := vendorFiles.ReadFile("vendors/" + s.vendor + ".caddyfile")
	if err != nil {
		return "", fmt.Errorf("reading the vendor %s: %w", s.vendor, err)
	}
	var block strings.Builder
	addressed := false
	for line := range strings.Lines(strings.TrimRight(string(text), "\n")) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "base_url" && s.baseURL != "":
			line, addressed = "\tbase_url "+s.baseURL+"\n", true
		case words[0] == "api_key" && words[1] == "none" && s.keyFile != "":
			variable = strings.ToUpper(s.vendor) + "_API_KEY"
			line = "\tapi_key {env." + variable + "}\n"
		case words[0] == "api_key" && words[1] != "none":
			variable = strings.TrimSuffix(strings.TrimPrefix(words[1], "{env."), "}")
		case words[0] == "model":
			line = s.nameModel(words[1])
		case (words[0] == "display_name" || words[0] == "upstream_model") && s.note != "":
			continue
		}
		block.WriteString(line)
	}
	if s.baseURL != "" && !addressed {
		return "", fmt.Errorf("%s has no address; leave --base-url out", s.vendor)
	}
	s.block = block.String()
	return variable, nil
}

// nameModel sets the public id of the model and returns the line with which its block begins. known is the id in the vendor's file,
// whose window and prices another model gets.
func (s *setup) nameModel(known string) (line string) {
	wanted := s.modelName
	s.model = s.vendor + "/" + strings.TrimPrefix(wanted, s.vendor+"/")
	if wanted == "" || s.model == known {
		s.model = known
		return "model " + known + " {\n"
	}
	s.note = fmt.Sprintf("Check the window, the largest output and the prices of %s in the Caddyfile: they are those of %s.", s.model, known)
	return "# " + s.note + "\nmodel " + s.model + " {\n"
}
