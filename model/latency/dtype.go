package latency

import "fmt"

// weightBytes returns the bytes of one weight, scales included.
func weightBytes(dtype string) (float64, error) {
	switch dtype {
	case "bf16":
		return 2, nil
	case "fp8", "fp8_block":
		return 1, nil
	case "nvfp4":
		return 0.5625, nil
	case "mxfp4":
		return 0.53125, nil
	}
	return 0, fmt.Errorf("unknown weight dtype %q: want bf16, fp8, fp8_block, nvfp4 or mxfp4", dtype)
}

func kvElementBytes(dtype string) (int64, error) {
	switch dtype {
	case "bf16":
		return 2, nil
	case "fp8":
		return 1, nil
	}
	return 0, fmt.Errorf("unknown KV dtype %q: want bf16 or fp8", dtype)
}
