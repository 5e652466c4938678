"""The environments as Gymnasium and stable-baselines3 see them; importing this registers them."""

from stallward.env.gym.registration import register

register()
