const apiKey = 'your-api-key-here';
const apiUrl = 'https://triggers-api.zapier.com/v1';

async function getEventStatus(eventId) {
  const response = await fetch(`${apiUrl}/events/${eventId}/status`, {
    method: 'GET',
    headers: {
      'X-API-Key': apiKey,
      'Content-Type': 'application/json'
    }
  });

  if (!response.ok) {
    throw new Error(`Error: ${response.status}`);
  }

  return await response.json();
}

async function waitForDelivery(eventId, maxWaitSeconds = 300) {
  const startTime = Date.now();

  while (true) {
    const status = await getEventStatus(eventId);

    console.log(`Event status: ${status.status}, retries: ${status.retry_attempts}`);

    if (status.status === 'delivered') {
      console.log('Event delivered successfully!');
      return status;
    } else if (status.status === 'failed') {
      console.log(`Event delivery failed after ${status.retry_attempts} retries`);
      return status;
    }

    const elapsed = (Date.now() - startTime) / 1000;
    if (elapsed > maxWaitSeconds) {
      console.log(`Timeout waiting for delivery (> ${maxWaitSeconds}s)`);
      return status;
    }

    // Wait 5 seconds before polling again
    await new Promise(resolve => setTimeout(resolve, 5000));
  }
}

// Usage
(async () => {
  try {
    const finalStatus = await waitForDelivery('550e8400-e29b-41d4-a716-446655440000', 600);
    console.log(`Final status: ${finalStatus.status}`);
  } catch (error) {
    console.error('Error:', error.message);
  }
})();
