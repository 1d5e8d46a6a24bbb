package exact

import "math"

// NormQuantile returns the x below which a standard normal variable falls with
// probability p: the inverse of its distribution function. NormQuantile(0) =
// -Inf, NormQuantile(1) = +Inf; p outside [0, 1] or NaN gives NaN.
//
// The rational approximations are those of Wichura, "Algorithm AS 241: The
// Percentage Points of the Normal Distribution", Applied Statistics 37 (1988),
// routine PPND16, about 1e-16 relative. The square root of the tail argument
// is package math's, which is exact.
func NormQuantile(p float64) float64 {
	switch {
	case !(p >= 0 && p <= 1):
		return notANumber()
	case p == 0:
		return -positiveInf()
	case p == 1:
		return positiveInf()
	}
	q := p - 0.5
	if q >= -0.425 && q <= 0.425 {
		r := 0.180625 - float64(q*q)
		return float64(q*poly(&centreTop, r)) / poly(&centreBottom, r)
	}
	tail := p
	if q > 0 {
		tail = 1 - p
	}
	r := math.Sqrt(-Log(tail))
	var x float64
	if r <= 5 {
		x = poly(&middleTop, r-1.6) / poly(&middleBottom, r-1.6)
	} else {
		x = poly(&farTop, r-5) / poly(&farBottom, r-5)
	}
	if q < 0 {
		return -x
	}
	return x
}

// LogNormal returns the u-quantile of the log-normal distribution with the
// given median (any unit) and sigma (the standard deviation of the logarithm):
// a draw, if u is uniform on (0, 1). sigma = 0 gives the median.
func LogNormal(median, sigma, u float64) float64 {
	if sigma == 0 {
		return median
	}
	return float64(median * Exp(float64(sigma*NormQuantile(u))))
}

// poly evaluates c[0] + c[1] x + ... + c[7] x^7.
func poly(c *[8]float64, x float64) float64 {
	s := c[7]
	for i := 6; i >= 0; i-- {
		s = float64(s*x) + c[i]
	}
	return s
}

var (
	centreTop = [8]float64{3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
		4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3}
	centreBottom = [8]float64{1, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
		2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3}
	middleTop = [8]float64{1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
		1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4}
	middleBottom = [8]float64{1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
		1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}
	farTop = [8]float64{6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
		2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7}
	farBottom = [8]float64{1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
		7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}
)
