package keras

import "testing"

// SkipRace skips a test that takes long under the race detector with -short. It is for
// tests that read sources, and for those that plan models and run next to nothing at a
// time: the detector sees nothing there that it does not see in the others.
func SkipRace(t *testing.T) {
	t.Helper()
	if raceDetector && testing.Short() {
		t.Skip("takes long under the race detector, and shares no work between goroutines")
	}
}
