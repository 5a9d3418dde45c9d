"""`pts` and `pts_paper`: size and inputs of the paper's network, its loss, start and end."""

import numpy as np
import pytest
import torch

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.pts_paper import T_BOUNDS


@pytest.mark.parametrize("id", ["pts", "pts_paper"])
@pytest.mark.parametrize(("n_classes", "weights"), [(10, 91), (30, 91), (4, 61)])
def test_the_network_has_the_published_number_of_weights(make, id, n_classes, weights):
    short = {"max_epochs": 2} if id == "pts" else {"steps": 2}
    assert make(40, n_classes).fit(id, **short).network.n_parameters == weights


def test_inputs_are_the_ten_largest_logits_in_descending_order_whatever_their_level():
    # of mean 0
    logits = np.array([[1.0, 5.0, 3.0, -1.0, *[-1.0] * 8], [0.0, 2.0, -np.inf, 7.0, *[-1.125] * 8]])
    for level in (0.0, 9.0):
        inputs = build_calibrator("pts")._inputs(check_logits(logits + level))
        np.testing.assert_allclose(
            inputs.T, [[5.0, 3.0, 1.0, *[-1.0] * 7], [7.0, 2.0, 0.0, *[-1.125] * 7]], atol=1e-14
        )


def test_the_fit_starts_at_the_single_temperature_for_every_sample_of_pts(problem):
    single = problem.fit("ts").fit_history["temperature"]
    history, smart = (problem.fit(id, max_epochs=1).fit_history for id in ("pts", "smart"))
    assert history["start_temperature"] == smart["start_temperature"] == single
    assert "start_temperature" not in problem.fit("smart", max_epochs=1, start="random").fit_history
    for name in ("temperature_min", "temperature_max"):
        assert history[name] == pytest.approx(single, rel=1e-12)


def paper_reference(logits, labels, start, layers, steps, learning_rate):
    """The published loop on one batch: |t| clamped, mean square over N x K, Adam, epsilon 1e-7."""
    model, scores = layers, torch.tensor(logits).clip(-100.0, 100.0)
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(torch.tensor(start), model.parameters())
    inputs = scores.sort(dim=1, descending=True).values[:, :10]
    target = torch.nn.functional.one_hot(torch.tensor(labels), logits.shape[1]).double()
    adam = torch.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-7)
    for _ in range(steps):
        temperature = model(inputs).abs().clip(*T_BOUNDS)
        loss = ((torch.softmax(scores / temperature, dim=1) - target) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def test_the_published_loop_takes_the_steps_of_its_formula(make, torch_network):
    data = make(200, 12)
    centred = data.logits - data.logits.mean(axis=1, keepdims=True)
    options = {"seed": 3, "learning_rate": 1e-2, "batch_size": 500}
    calibrator = data.fit("pts_paper", steps=60, **options)
    start = calibrator.network.glorot(np.random.default_rng(3))
    model = torch_network(calibrator.network, start)
    expected = paper_reference(centred, data.labels, start, model, 60, 1e-2)
    np.testing.assert_allclose(calibrator._parameters, expected, rtol=0, atol=2e-4)
    assert np.abs(calibrator._parameters - start).max() > 0.1


def test_batches_cover_all_samples_of_an_epoch_and_stop_at_the_last_step(problem):
    seven, nine = (problem.fit("pts_paper", batch_size=250, steps=steps) for steps in (7, 9))
    # 600 samples are three batches: two epochs and one batch
    assert seven.fit_history["epochs"] == nine.fit_history["epochs"] == 3
    assert seven.fit_history["loss"][-1] != nine.fit_history["loss"][-1]


def test_published_temperatures_are_absolute_values_within_their_bounds():
    temperature, slope = build_calibrator("pts_paper")._link(np.array([-3.0, 0.0, 2.0, 1e15]))
    np.testing.assert_array_equal(temperature, [3.0, 1e-12, 2.0, 1e12])
    np.testing.assert_array_equal(slope, [-1.0, 0.0, 1.0, 0.0])


def test_published_logits_are_clipped_at_100(problem):
    calibrator = problem.fit("pts_paper", steps=2)
    far, clipped = (
        check_logits(np.array([[largest, -100.0, -100.0, -100.0, 0.0]])) for largest in (300, 100)
    )
    np.testing.assert_array_equal(calibrator._scaled(far), clipped)
