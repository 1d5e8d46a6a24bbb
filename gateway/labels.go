package gateway

import (
	"encoding/binary"
	"math"
	"net/http"

	"github.com/sluice-sim/sluice/gateway/identity"
)

// lastClass is the least important service class, as in scenarios.
const lastClass = 7

// label reads the service class and the group of a request where the configuration names headers for them. A group is known
// by a keyed hash: the same in every gateway of an installation, and no text.
func (f *flight) label(h http.Header) *refusal {
	c := &f.g.cfg.Identity
	f.class, f.group = int32(c.Absent), -1
	if c.Class != "" {
		v, err := identity.Header(h, c.Class)
		switch {
		case err != nil || len(v) > 1 || v != "" && (v[0] < '0' || v[0] > '0'+lastClass):
			return badRequest("invalid_class", c.Class+": expected one service class from 0 to 7")
		case v != "":
			f.class = int32(v[0] - '0')
		}
	}
	if c.Group != "" {
		v, err := identity.Header(h, c.Group)
		if err != nil {
			return badRequest("invalid_group", err.Error())
		} else if v != "" {
			sum := f.g.digest("group", []byte(v))
			f.group = int32(binary.LittleEndian.Uint32(sum[:4]) & math.MaxInt32)
		}
	}
	return nil
}
