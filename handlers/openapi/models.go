package openapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers/v1"
)

// modelListObject is the answer of GET /v1/models (spec §2.2), as [v1.Models] renders it.
type modelListObject struct {
	Object string           `json:"object" enum:"list"`
	Data   []v1.ModelObject `json:"data"   nullable:"false"`
}

func describeModels(d *describer) *huma.Operation {
	return &huma.Operation{
		OperationID: "listModels",
		Responses:   map[string]*huma.Response{"200": d.jsonResponse("The models", reflect.TypeFor[modelListObject]())},
	}
}

func describeModel(d *describer) *huma.Operation {
	return &huma.Operation{
		OperationID: "getModel",
		Parameters:  []*huma.Param{pathParameter("id", "The model's id. Its slash may be sent as it is or as %2F.")},
		Responses:   map[string]*huma.Response{"200": d.jsonResponse("The model", reflect.TypeFor[v1.ModelObject]())},
	}
}
